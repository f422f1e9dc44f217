"""Looking into networks of images: attention over the patches, classes by layer, the patches that decided, a page."""
