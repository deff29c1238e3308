// Package blot keeps credentials out of what a server says about a request that held
// them: rpchttp and rpcws show the beginning of such an answer in their errors. It
// knows nothing of the request; its users list what is secret.
package blot

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Mark is what stands in place of secrets.
const Mark = "[…]"

// ShortestWord is the length, in bytes, from which on a part of a header or a query is
// taken for a secret by itself: texts are full of shorter ones.
const ShortestWord = 8

// Text replaces the secrets in text, those that overlap as one: what is left of a key
// without a short one in it, a header of "1" for example, or of two that share some of
// their bytes, would still tell the key. Empty ones are none. Of a text that was cut off
// the end goes, too, where it may be the beginning of a secret. instead says what stands
// in place of some bytes; nil is [Mark].
func Text(text string, secrets []string, cut bool, instead func(hidden string) string) string {
	end := len(text)
	hidden := make([]bool, len(text))
	for _, s := range secrets {
		if s == "" {
			continue
		}
		for n := min(len(s)-1, len(text)); cut && n > len(text)-end; n-- {
			if strings.HasSuffix(text, s[:n]) {
				end = len(text) - n
			}
		}
		hide(hidden, text, s)
	}
	if instead == nil {
		instead = func(string) string { return Mark }
	}
	var b strings.Builder
	for from := 0; from < end; {
		to := from + 1
		for to < len(text) && hidden[to] == hidden[from] {
			to++
		}
		if hidden[from] {
			b.WriteString(instead(text[from:to]))
		} else {
			b.WriteString(text[from:min(to, end)])
		}
		from = to
	}
	return b.String()
}

// hide marks the bytes of text that belong to the secret.
func hide(hidden []bool, text, secret string) {
	marked := 0
	for from := 0; ; {
		i := strings.Index(text[from:], secret)
		if i < 0 {
			return
		}
		from += i
		for marked = max(marked, from); marked < from+len(secret); marked++ {
			hidden[marked] = true
		}
		from++
	}
}

// Words lists the parts of a header's value that are long enough to be secrets by
// themselves, with and without what stands around the values of cookies and parameters:
// "KEY" of "Bearer KEY" and of "session=KEY;".
func Words(value string) []string {
	inner := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,=\"", r) })
	return slices.DeleteFunc(append(strings.Fields(value), inner...), func(s string) bool { return len(s) < ShortestWord })
}

// Query lists a query as a whole and its values, as they are written and as they are
// meant.
func Query(raw string) []string {
	if raw == "" {
		return nil
	}
	secrets := []string{raw}
	for pair := range strings.SplitSeq(raw, "&") {
		value := pair[strings.IndexByte(pair, '=')+1:]
		plain, err := url.QueryUnescape(value)
		for _, v := range []string{value, plain} {
			if len(v) >= ShortestWord && err == nil {
				secrets = append(secrets, v)
			}
		}
	}
	return secrets
}

// InJSON lists how secrets stand in a JSON string where that is in another way; some
// servers escape slashes, too.
func InJSON(secrets []string) []string {
	var all []string
	for _, s := range secrets {
		quoted, err := json.Marshal(s)
		if err != nil {
			continue
		}
		plain := string(quoted[1 : len(quoted)-1])
		for _, form := range []string{plain, strings.ReplaceAll(plain, "/", `\/`)} {
			if form != s {
				all = append(all, form)
			}
		}
	}
	return all
}
