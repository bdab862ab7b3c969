// Files of torch.save spelled out, right or wrong, for tests of their reader: pickles opcode by opcode, and zip files
// record by record.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace layercast::torch_file {

// The low `width` bytes of a number, little-endian; bytes beyond the eighth are zero.
inline std::string Number(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i, value >>= 8) bytes.push_back(static_cast<char>(static_cast<unsigned char>(value)));
  return bytes;
}

// Pieces of a pickle.
inline std::string Text(std::string_view text) { return "X" + Number(text.size(), 4) + std::string(text); }
inline std::string Int(std::int64_t value) { return "\x8a\x08" + Number(static_cast<std::uint64_t>(value), 8); }
inline std::string Global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string Tuple(const std::vector<std::string>& items) {
  std::string tuple = "(";
  for (const std::string& item : items) tuple += item;
  return tuple + "t";
}
inline std::string Ints(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(Int(value));
  return Tuple(items);
}
inline std::string Call(const std::string& global, const std::vector<std::string>& arguments) {
  return global + Tuple(arguments) + "R";
}
inline std::string OrderedDict() { return Global("collections", "OrderedDict") + ")R"; }
inline std::string Storage(std::string_view of, std::string_view key, std::int64_t count) {
  return Tuple({Text("storage"), Global("torch", of), Text(key), Text("cpu"), Int(count)}) + "Q";
}
inline std::string Tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& size,
                          const std::vector<std::int64_t>& strides) {
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Int(offset), Ints(size), Ints(strides), "\x89", OrderedDict()});
}
inline std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string dict = "}(";
  for (const auto& [name, value] : items) dict += Text(name) + value;
  return dict + "u";
}
inline std::string Pickled(const std::string& object) { return "\x80\x02" + object + "."; }

struct Record {
  std::string name;
  std::string bytes;
  std::uint16_t method = 0;
  std::uint16_t flags = 0x0808;  // the flags that torch sets
};

inline std::uint32_t Crc32(std::string_view bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

inline std::string Zip(const std::vector<Record>& records) {
  using namespace std::string_literals;
  std::string file;
  std::string directory;
  for (const Record& record : records) {
    const std::string crc = Number(Crc32(record.bytes), 4);
    const std::string size = Number(record.bytes.size(), 4);
    const std::string lengths = Number(record.name.size(), 2);
    directory += "PK\1\2"s + Number(0, 4) + Number(record.flags, 2) + Number(record.method, 2) + Number(0, 4) + crc +
                 size + size + lengths + Number(0, 12) + Number(file.size(), 4) + record.name;
    file += "PK\3\4"s + Number(0, 2) + Number(record.flags, 2) + Number(record.method, 2) + Number(0, 4) + crc + size +
            size + lengths + Number(5, 2) + record.name + "FB\1\0Z"s + record.bytes;
  }
  const std::size_t begin = file.size();
  return file + directory + "PK\5\6"s + Number(0, 4) + Number(records.size(), 2) + Number(records.size(), 2) +
         Number(directory.size(), 4) + Number(begin, 4) + Number(0, 2);
}

// The file that torch.save would write for this pickle and these storages, of which the first is called "0".
inline std::string File(const std::string& pickle, const std::vector<std::string>& storages) {
  std::vector<Record> records = {{"archive/data.pkl", pickle}, {"archive/byteorder", "little"}};
  for (std::size_t i = 0; i < storages.size(); ++i) {
    records.push_back({"archive/data/" + std::to_string(i), storages[i]});
  }
  records.push_back({"archive/version", "3\n"});
  return Zip(records);
}

}  // namespace layercast::torch_file
