// Checks that bytes are text, and makes them fit to be shown. Used on names from users, files and peers, before they
// are printed or compared. *Unprintable* is whatever would act on a terminal, or on how the text around it is read:
// invalid UTF-8, control characters (C0, DEL, C1), line and paragraph separators, and controls of writing direction.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/error.h"

namespace layercast {

// The offset of the first byte that is not well-formed UTF-8 (overlong forms and surrogates are not), or nothing.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text);

// `text` with the bytes of what is unprintable as \xNN, shortened past `most` bytes ("...").
std::string Escaped(std::string_view text, std::size_t most = std::string_view::npos);
// The same for text that is shown as a whole, at the border to a terminal or a log, whatever of it was escaped before.
// EscapedLines keeps line breaks. EscapedMessage is for one error or log entry: it keeps those before an indented line,
// so that no name can begin a line that looks like another entry.
std::string EscapedLines(std::string_view text);
std::string EscapedMessage(std::string_view text);

// `text` in single quotes, fit for a message: escaped, and shortened past 200 bytes.
std::string Quote(std::string_view text);

// Throws an error of this code, quoting `name`, unless it is all printable and no longer than a name may be (1024
// bytes): names appear in logs, in errors, and in what a publisher tells others. `what` says whose name it is.
void CheckName(const std::string& what, const std::string& name, ErrorCode code = ErrorCode::kInvalidArgument);

}  // namespace layercast
