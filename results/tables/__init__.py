"""The tables of studies, their sentences, and the writers of Markdown, LaTeX, CSV, JSON and HTML."""
