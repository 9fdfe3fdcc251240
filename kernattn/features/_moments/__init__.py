"""What is known of estimates without measuring: moments, and bounds on errors."""
