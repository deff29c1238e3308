package verification

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// maxSkew is how old a request may be, and how far in the future.
const maxSkew = 5 * time.Minute

// signed says whether Slack has sent a body: the signature is that of the secret,
// and not older or newer than it may be. Whatever is missing, doubled or not
// well-formed is not signed.
func signed(secret parley.Secret, header http.Header, body []byte, now time.Time) bool {
	stamps, signatures := header.Values("X-Slack-Request-Timestamp"), header.Values("X-Slack-Signature")
	if secret.IsZero() || len(stamps) != 1 || len(signatures) != 1 {
		return false
	}
	stamp := stamps[0]
	if stamp == "" || len(stamp) > 12 || strings.Trim(stamp, "0123456789") != "" {
		return false
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > maxSkew {
		return false
	}
	digest, ok := strings.CutPrefix(signatures[0], "v0=")
	if !ok {
		return false
	}
	got, err := hex.DecodeString(digest)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret.Reveal())
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	return hmac.Equal(got, mac.Sum(nil))
}
