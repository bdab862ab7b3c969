// The order in which people number files: model-2 before model-10.
#pragma once

#include <string_view>

namespace layercast {

// Whether `left` comes before `right`. A strict total order: runs of digits compare as numbers, all else byte by byte.
bool NaturalLess(std::string_view left, std::string_view right);

}  // namespace layercast
