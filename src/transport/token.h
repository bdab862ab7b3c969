// Sixteen random bytes that stand for a right: to connect to a publisher, or to send over a connection. Values.
#pragma once

#include <array>
#include <cstddef>

namespace layercast {

using Token = std::array<std::byte, 16>;

Token RandomToken();  // throws kResourceExhausted
// Takes as long wherever the difference is.
bool SameToken(const Token& a, const Token& b);

}  // namespace layercast
