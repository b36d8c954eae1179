"""What declarations of sources say: their options, and how records are laid out."""
