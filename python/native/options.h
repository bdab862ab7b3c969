// Keyword arguments, read by name: whatever is wrong with one is said with its name.
#pragma once

#include <chrono>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>

#include "layercast/error.h"
#include "layercast/keys/key_options.h"
#include "python/native/native.h"

namespace layercast::python {

template <typename T>
constexpr const char* Expected() {
  if constexpr (std::same_as<T, bool>)
    return "True or False";
  else if constexpr (std::unsigned_integral<T>)
    return "an integer of 0 or more";
  else if constexpr (std::integral<T>)
    return "an integer";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else if constexpr (std::same_as<T, std::string> || std::same_as<T, std::optional<std::string>>)
    return "a string";
  else
    return "another type";
}

[[noreturn]] inline void RefuseOption(const char* name, const std::string& expected, nb::handle got) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + ": expected " + expected + ", got " + nb::cast<std::string>(nb::repr(got)));
}

// The option of that name, or `otherwise` if it was not given. Throws kInvalidArgument if it is of another type.
template <typename T>
T Option(const nb::kwargs& options, const char* name, T otherwise) {
  if (!options.contains(name)) return otherwise;
  const nb::object value = nb::borrow(options[name]);
  T read{};
  if (!nb::try_cast<T>(value, read)) RefuseOption(name, Expected<T>(), value);
  return read;
}

// The longest time that any clock of ours is asked for; also what infinity means.
inline constexpr double kLongestSeconds = 1e9;

// Rounded up. Throws kInvalidArgument on a negative time, and on NaN.
inline std::chrono::milliseconds FromSeconds(const char* name, double seconds) {
  if (!(seconds >= 0)) RefuseOption(name, "seconds, 0 or more", nb::float_(seconds));
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::fmin(seconds, kLongestSeconds)));
}

inline std::chrono::milliseconds Seconds(const nb::kwargs& options, const char* name, double otherwise) {
  return FromSeconds(name, Option(options, name, otherwise));
}

// `keys`, `secret` and `insecure`; `sign`, `trust` and `allow_unsigned`.
inline KeyOptions KeysFrom(const nb::kwargs& options) {
  return {.folder = Option(options, "keys", std::string()),
          .secret = Option(options, "secret", std::string()),
          .insecure = Option(options, "insecure", false),
          .sign = Option(options, "sign", std::string()),
          .trust = Option(options, "trust", std::string()),
          .allow_unsigned = Option(options, "allow_unsigned", false)};
}

}  // namespace layercast::python
