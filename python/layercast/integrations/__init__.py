"""Where Layercast plugs into trainers: a module each, which imports its trainer inside functions. Users import them as
``layercast.trl``, ``layercast.ray`` (docs/trainers.md)."""
