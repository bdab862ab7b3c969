// Safetensors files spelled out, right or wrong, for tests of their readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace layercast {

// The header's length, the header, and the data. Nothing is padded or checked.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<unsigned char>(static_cast<std::uint64_t>(header.size()) >> shift)));
  }
  return file.append(header).append(data);
}

// A file with one tensor of `count` fp32 zeros.
inline std::string OneTensorFile(const std::string& name, std::size_t count = 2) {
  const std::string size = std::to_string(count);
  return SafetensorsBytes("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + size + "],\"data_offsets\":[0," +
                              std::to_string(count * 4) + "]}}",
                          std::string(count * 4, '\0'));
}

}  // namespace layercast
