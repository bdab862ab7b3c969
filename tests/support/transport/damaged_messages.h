// What every channel's messages must stand: cut short, one byte too many, and bytes that chance wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "layercast/error.h"
#include "tests/fuzz/fuzz_inputs.h"

namespace layercast::testing {

// `decode` reads a message as whatever it says it is. A damaged one may still make sense; what does not is kCorrupt.
template <typename Decode>
void ExpectDamagedOnesAreRefused(const std::vector<std::vector<std::byte>>& messages, const Decode& decode) {
  std::mt19937 random(5);
  for (const std::vector<std::byte>& message : messages) {
    for (std::size_t size = 0; size < message.size(); ++size) {
      EXPECT_THROW(decode(std::vector(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size))), Error)
          << size;
    }
    std::vector<std::byte> longer = message;
    longer.push_back(std::byte{0});
    EXPECT_THROW(decode(longer), Error);
    for (std::size_t i = 0; i < FuzzInputs(2000 * messages.size()) / messages.size(); ++i) {
      std::vector<std::byte> damaged = message;
      for (std::size_t hits = 1 + random() % 3; hits > 0; --hits) {
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      }
      try {
        decode(damaged);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      }
    }
  }
}

}  // namespace layercast::testing
