#include "src/net/keys/signing_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "layercast/error.h"
#include "src/net/keys/key_file.h"
#include "src/net/keys/keys.h"
#include "tests/support/error_of.h"
#include "tests/support/hex.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SigningKeyTest : public ::testing::Test {
 protected:
  std::string In(const std::string& name) const { return (folder_ / name).string(); }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string List(const std::string& text) const {
    folder_.Write("list", text);
    ::chmod(In("list").c_str(), 0644);
    return In("list");
  }
  TempFolder folder_;
};

// RFC 8032, 7.1, test 2.
TEST_F(SigningKeyTest, SignsAsEd25519Does) {
  const auto seed = KeyFromText("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
  const SigningKey key{SecretKey(*seed)};
  EXPECT_EQ(ToText(key.public_key()), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  const std::array<std::byte, 1> text = {std::byte{0x72}};
  const Signature signature = key.Sign(text);
  EXPECT_EQ(test::Hex(signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  EXPECT_TRUE(HasSigned(key.public_key(), text, signature));
  const std::array<std::byte, 1> other = {std::byte{0x73}};
  EXPECT_FALSE(HasSigned(key.public_key(), other, signature));
  EXPECT_FALSE(HasSigned(SigningKey(RandomSecret()).public_key(), text, signature));
}

TEST_F(SigningKeyTest, IsMadeAsFilesOfOneLineThatAreNeverOverwritten) {
  const PublicKey made = MakeSigningKey(In("key"));
  EXPECT_EQ(Text("key.public"), "layercast-signing-1 " + ToText(made) + "\n");
  EXPECT_EQ(SigningKey::Read(In("key")).public_key(), made);
  EXPECT_THAT(ErrorOf([&] { MakeSigningKey(In("key")); }), HasSubstr("never overwritten"));
  ::chmod(In("key").c_str(), 0640);
  EXPECT_THAT(ErrorOf([&] { SigningKey::Read(In("key")); }), HasSubstr("expected mode 0600"));
  WriteSecretFile(In("curve"), kClientSecret, RandomSecret());
  EXPECT_THAT(ErrorOf([&] { SigningKey::Read(In("curve")); }), HasSubstr("'layercast-signing-secret-1'"));
}

TEST_F(SigningKeyTest, IsTrustedIfItsLineIsInTheList) {
  const PublicKey a = MakeSigningKey(In("a")), b = MakeSigningKey(In("b")), c = MakeSigningKey(In("c"));
  std::string named = Text("b.public");
  named.insert(named.size() - 1, " the-next");
  const TrustedKeys trusted = TrustedKeys::Read(List("# ours\n\n" + Text("a.public") + named));
  EXPECT_TRUE(trusted.Has(a));
  EXPECT_TRUE(trusted.Has(b));
  EXPECT_FALSE(trusted.Has(c));
  EXPECT_THAT(trusted.Text(), AllOf(HasSubstr(ShortText(a)), HasSubstr(ShortText(b) + " (the-next)")));
  EXPECT_TRUE(TrustedKeys::Read(In("c.public")).Has(c)) << "a file of one key is a list";
}

TEST_F(SigningKeyTest, AListWithoutKeysOrWithOthersIsRefusedAndNothingOfItIsShown) {
  MakeSigningKey(In("a"));
  const std::string secret = Text("a").substr(Text("a").find(' ') + 1, 64);
  EXPECT_THAT(ErrorOf([&] { TrustedKeys::Read(List("# none\n")); }),
              AllOf(HasSubstr(In("list")), HasSubstr("got none")));
  EXPECT_THAT(ErrorOf([&] { TrustedKeys::Read(List("\n" + Text("a"))); }),
              AllOf(HasSubstr("list, line 2"), Not(HasSubstr(secret))));
  EXPECT_THAT(ErrorOf([&] { TrustedKeys::Read(In("gone")); }, ErrorCode::kNotFound), HasSubstr(In("gone")));
  List(Text("a.public"));
  ::chmod(In("list").c_str(), 0666);
  EXPECT_THAT(ErrorOf([&] { TrustedKeys::Read(In("list")); }), HasSubstr("others can write it"));
}

TEST_F(SigningKeyTest, IsAmongAProcesssKeysBesideThoseOfConnections) {
  const PublicKey key = MakeSigningKey(In("key"));
  const Keys none = Keys::From({});
  EXPECT_EQ(none.signing(), nullptr);
  EXPECT_EQ(none.trusted(), nullptr);
  EXPECT_TRUE(none.may_be_unsigned());
  const Keys both = Keys::From({.sign = In("key"), .trust = In("key.public")});
  EXPECT_FALSE(both.given()) << "nobody is kept out by it";
  EXPECT_EQ(both.signing()->public_key(), key);
  EXPECT_TRUE(both.trusted()->Has(key));
  EXPECT_FALSE(both.may_be_unsigned());
  EXPECT_TRUE(Keys::From({.trust = In("key.public"), .allow_unsigned = true}).may_be_unsigned());
  ::setenv("LAYERCAST_TRUST", In("key.public").c_str(), 1);
  ::setenv("LAYERCAST_SIGN", In("key").c_str(), 1);
  const Keys environment = Keys::From({});
  ::unsetenv("LAYERCAST_TRUST");
  ::unsetenv("LAYERCAST_SIGN");
  EXPECT_NE(environment.signing(), nullptr);
  EXPECT_NE(environment.trusted(), nullptr);
}

}  // namespace
}  // namespace layercast::testing
