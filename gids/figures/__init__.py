"""Tables and figures for reports: plain text and inline SVG, nothing loaded from anywhere."""
