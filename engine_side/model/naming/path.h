// Paths in the module tree: segments joined by dots.
#pragma once

#include <string>
#include <string_view>

namespace layercast {

// Joins two paths: "a.b" and "c.d" -> "a.b.c.d"; "" and "c" -> "c".
inline std::string JoinPath(std::string_view path, std::string_view name) {
  std::string joined;
  joined.reserve(path.size() + 1 + name.size());
  joined += path;
  if (!path.empty()) joined += '.';
  return joined += name;
}

// The path without its last segment: "a.b.c" -> "a.b"; "c" -> "".
inline std::string_view ParentPath(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

// The last segment: "a.b.c" -> "c".
inline std::string_view LastName(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace layercast
