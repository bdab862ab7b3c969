// Sixteen random bytes that stand for a right: to connect to a publisher, or to send over a connection. Values.
#pragma once

#include <array>
#include <cstddef>

namespace layercast {

using Token = std::array<std::byte, 16>;

Token RandomToken();  // throws kResourceExhausted
// Takes the same time wherever the tokens differ, so that time tells nothing about a secret.
bool SameToken(const Token& a, const Token& b);

}  // namespace layercast
