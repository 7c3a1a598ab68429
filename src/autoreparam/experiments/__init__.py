"""The paper's protocol and figures, and the demo."""
