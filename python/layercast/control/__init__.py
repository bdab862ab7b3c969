"""What a controller's calls come to: outcomes of engines, and versions on trial."""
