// Marks what the shared library exports; everything else is hidden, and so are the parts of an exported class that are
// marked so.
#pragma once

#define LAYERCAST_PUBLIC __attribute__((visibility("default")))
#define LAYERCAST_HIDDEN __attribute__((visibility("hidden")))
