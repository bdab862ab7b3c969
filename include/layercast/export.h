// Marks what the shared library exports; everything else is hidden.
#pragma once

#define LAYERCAST_PUBLIC __attribute__((visibility("default")))
