"""Pictures: labelled ones from files of any kind, augmented in tensors on the device, and cut into flat patches."""
