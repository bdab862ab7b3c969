// Checks that bytes are text. Used on names from files and peers, before they are printed or compared.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace layercast {

// The offset of the first byte that is not well-formed UTF-8 (overlong forms and surrogates are not), or nothing.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text);

// `text` in single quotes, fit for a message: invalid UTF-8 and control characters as \xNN, shortened
// past 200 bytes.
std::string Quote(std::string_view text);

}  // namespace layercast
