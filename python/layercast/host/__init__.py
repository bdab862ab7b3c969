"""What plug-ins for engines share: recording their loaders, and finding tensors in their memory."""
