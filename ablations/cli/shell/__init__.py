"""What a shell shows of the command: its help, and the words it completes."""
