package bridge

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

const redactedMark = "[redacted]"

// Redact gives the first limit bytes of text without agent's credentials, as
// they are, as requests carry them and as they stand inside a JSON string, whichever
// of their characters are escaped there, and marks where it was cut. A credential that the cut would divide is taken out whole. The result is UTF-8.
func Redact(agent parley.Agent, text []byte, limit int) string {
	return redact(secretsOf(agent), text, limit)
}

func redact(secrets [][]byte, text []byte, limit int) string {
	var out strings.Builder
	end := min(len(text), limit)
	pos := 0
	look := sightings{text: text, end: end, secrets: secrets, seen: slices.Repeat([]sighting{{at: -1}}, len(secrets))}
	for pos < end {
		at, n := look.next(pos)
		if at < 0 {
			break
		}
		out.Write(text[pos:at])
		out.WriteString(redactedMark)
		pos = look.through(at, n)
	}
	if pos < end {
		out.Write(text[pos:end])
	}
	s := out.String()
	if end < len(text) {
		for range utf8.UTFMax - 1 { // not within a character
			if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
				break
			}
			s = s[:len(s)-1]
		}
		s += "… (cut)"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// sightings finds secrets that begin in text[:end]; they may end behind end. seen
// is where each was found last, or end: none is looked for in the same place twice,
// however often an agent repeats another one.
type sightings struct {
	text    []byte
	end     int
	secrets [][]byte
	seen    []sighting
}

// sighting is a place of a secret, and how long it is there.
type sighting struct{ at, n int }

// through gives where the secret at that place ends, or the last of those that begin
// within: of one that overlaps another nothing may be left.
func (l *sightings) through(at, n int) int {
	over := at + n
	for from := at + 1; from < over; from++ {
		next, n := l.next(from)
		if next < 0 || next >= over {
			break
		}
		from, over = next, max(over, next+n)
	}
	return over
}

// next gives the first secret from pos on, the longest of several, where pos never goes
// back.
func (l *sightings) next(pos int) (at, n int) {
	at = -1
	for i, s := range l.secrets {
		if l.seen[i].at < pos {
			l.seen[i] = sighting{at: l.end}
			window := l.text[pos:min(len(l.text), l.end-1+len(s)*maxEscape)]
			if ahead, n := spelled(window, s); ahead >= 0 {
				l.seen[i] = sighting{pos + ahead, n}
			}
		}
		if s := l.seen[i]; s.at < l.end && (at < 0 || s.at < at || s.at == at && s.n > n) {
			at, n = s.at, s.n
		}
	}
	return at, n
}

// redactError takes agent's credentials out of an error that repeats an agent's
// words, and bounds it.
func redactError(agent parley.Agent, e *parley.Error) *parley.Error {
	if e == nil {
		return nil
	}
	e.Message = Redact(agent, []byte(e.Message), maxErrorBody)
	e.Details = RedactJSON(agent, e.Details)
	return e
}

// RedactJSON gives a JSON value without agent's credentials. It is raw itself if
// there are none to take out.
func RedactJSON(agent parley.Agent, raw json.RawMessage) json.RawMessage {
	return redactJSON(secretsOf(agent), raw)
}

// minOutputSecret is the least length, in bytes, of a secret that is taken out
// of an output: a shorter one may stand in any text, and an output is data.
const minOutputSecret = 8

// redactOutput is RedactJSON for what an agent has made: one that repeats its
// caller's credentials shall not get them into a record.
func redactOutput(agent parley.Agent, output json.RawMessage) json.RawMessage {
	secrets := secretsOf(agent)
	return redactJSON(slices.DeleteFunc(secrets, func(s []byte) bool { return len(s) < minOutputSecret }), output)
}

func redactJSON(secrets [][]byte, raw json.RawMessage) json.RawMessage {
	if !slices.ContainsFunc(secrets, func(s []byte) bool { at, _ := spelled(raw, s); return at >= 0 }) {
		return raw
	}
	clean := []byte(redact(secrets, raw, len(raw)))
	if !json.Valid(clean) { // the credential looked like a part of JSON
		clean = []byte(`"` + redactedMark + `"`)
	}
	return clean
}
