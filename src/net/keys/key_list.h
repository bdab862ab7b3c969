// Lists of keys, a line for each, with comments behind '#'. Used by the list of who is admitted, and by that of who is
// trusted to sign.
#pragma once

#include <string>
#include <string_view>

namespace layercast {

// The whole of such a file. Throws kNotFound, and kInvalidArgument, naming it, also if others can write it or it is
// long.
std::string ReadKeyList(const std::string& path);

// The text's first line, which is cut off from it.
std::string_view NextLine(std::string_view& text);
// The next word of a line, which is cut off from it; empty: there is none.
std::string_view NextWord(std::string_view& line);

}  // namespace layercast
