// Checks that bytes are text. Used on names from users, files and peers, before they are printed or compared.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/error.h"

namespace layercast {

// The offset of the first byte that is not well-formed UTF-8 (overlong forms and surrogates are not), or nothing.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text);

// `text` with invalid UTF-8 and control characters as \xNN, shortened past `most` bytes ("...").
std::string Escaped(std::string_view text, std::size_t most = std::string_view::npos);

// `text` in single quotes, fit for a message: escaped, and shortened past 200 bytes.
std::string Quote(std::string_view text);

// Throws an error of this code, quoting `name`, unless it is printable and no longer than a name may be (1024 bytes):
// names appear in logs, in errors, and in what a publisher tells others. `what` says whose name it is.
void CheckName(const std::string& what, const std::string& name, ErrorCode code = ErrorCode::kInvalidArgument);

}  // namespace layercast
