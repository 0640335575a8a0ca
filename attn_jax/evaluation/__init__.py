"""What a trained model is worth: decoding, metrics, pictures."""
