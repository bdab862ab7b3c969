// How a version is published, in the words of sessions. Both halves of a session need it.
#pragma once

#include "layercast/publisher.h"

namespace layercast {

using PublishMode = PublishAs;

}  // namespace layercast
