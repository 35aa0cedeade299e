"""What a shell shows of the command: its help, and completed words."""
