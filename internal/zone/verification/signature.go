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

// What keeps a request from being taken for one of Slack's, "" for nothing.
const (
	// unsigned: a header is missing, doubled or not well-formed.
	unsigned = "unsigned"
	// otherSignature: it was signed with another secret, or is not what was signed.
	otherSignature = "signature"
	// otherTime: the signature is right, and older or newer than it may be: it is
	// repeated by somebody, or the clock here is wrong.
	otherTime = "time"
)

// verify says why Slack has not sent a body now, and how old its signature is.
func verify(secret parley.Secret, header http.Header, body []byte, now time.Time) (why string, age time.Duration) {
	stamps, signatures := header.Values("X-Slack-Request-Timestamp"), header.Values("X-Slack-Signature")
	if secret.IsZero() || len(stamps) != 1 || len(signatures) != 1 {
		return unsigned, 0
	}
	stamp := stamps[0]
	if stamp == "" || len(stamp) > 12 || strings.Trim(stamp, "0123456789") != "" {
		return unsigned, 0
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return unsigned, 0
	}
	digest, ok := strings.CutPrefix(signatures[0], "v0=")
	if !ok {
		return unsigned, 0
	}
	got, err := hex.DecodeString(digest)
	if err != nil {
		return unsigned, 0
	}
	mac := hmac.New(sha256.New, secret.Reveal())
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return otherSignature, 0
	}
	if age = now.Sub(time.Unix(seconds, 0)); age.Abs() > maxSkew {
		return otherTime, age
	}
	return "", age
}
