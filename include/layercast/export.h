// LAYERCAST_PUBLIC marks what the shared library exports; everything else is hidden. LAYERCAST_HIDDEN hides a part of
// an exported class.
#pragma once

#define LAYERCAST_PUBLIC __attribute__((visibility("default")))
#define LAYERCAST_HIDDEN __attribute__((visibility("hidden")))
