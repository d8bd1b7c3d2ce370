"""From request records to the paper's tables, figures and claims; nothing here simulates."""
