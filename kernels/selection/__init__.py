"""Selection policies: which entries a bounded cache keeps. One small file each, one interface (`policy`)."""
