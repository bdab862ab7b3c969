// What a call says when it is refused. Header-only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "layercast/error.h"

namespace layercast::testing {

// The message of the Error that `call` throws.
inline std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The same, of an Error with this code.
inline std::string ErrorOf(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace layercast::testing
