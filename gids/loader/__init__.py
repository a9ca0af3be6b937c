"""The data loader: sampling and reading run ahead of training; epochs are exact, whatever the window."""
