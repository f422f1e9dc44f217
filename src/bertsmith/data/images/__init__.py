"""Images: labelled ones from files of any kind, and augmented in tensors on the device."""
