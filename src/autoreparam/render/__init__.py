"""Tables and Markdown as a terminal, a notebook and a browser show them."""
