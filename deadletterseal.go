package parley

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// What is kept of a dead letter, in bytes. A key or a value that is longer than
// DeadLetterValue is kept by its first DeadLetterCut bytes, the value by its size
// and its digest, too: it has passed no bus of ours.
const (
	DeadLetterValue = 1 << 20
	DeadLetterCut   = 64 << 10
	// deadLetterReason bounds a reason, deadLetterRun the id of a run, which may be a
	// stranger's and has to fit into an index, deadLetterName every other text.
	deadLetterReason = 4 << 10
	deadLetterRun    = 1 << 10
	deadLetterName   = 16 << 10
	// deadLetterHeaders bounds the number of headers, deadLetterHeaderBytes all
	// of them together.
	deadLetterHeaders     = 64
	deadLetterHeaderBytes = 32 << 10
)

// Redacted stands for the value of a header that names credentials.
const Redacted = "[redacted]"

// Seal completes a dead letter whose Value is whole: it gets its id, size,
// digest and state, texts and values get their limits, and headers that name
// credentials lose their values.
func (l DeadLetter) Seal() DeadLetter {
	sum := sha256.Sum256(l.Value)
	l.State, l.Size, l.Digest = DeadLetterWaiting, int64(len(l.Value)), hex.EncodeToString(sum[:])
	l.CreatedAt = l.CreatedAt.UTC().Truncate(time.Microsecond)
	l.FirstFailedAt = cmp.Or(l.FirstFailedAt.UTC().Truncate(time.Microsecond), l.CreatedAt)
	l.ID = l.identity(sum[:])
	if len(l.Value) > DeadLetterValue {
		l.Value, l.Cut = l.Value[:DeadLetterCut:DeadLetterCut], true
	}
	l.Reason = fitText(l.Reason, deadLetterReason)
	l.Run = fitText(l.Run, deadLetterRun)
	for _, text := range []*string{&l.Agent, &l.Workflow, &l.Step, &l.Task} {
		*text = fitText(*text, deadLetterName)
	}
	if len(l.Key) > DeadLetterValue {
		l.Key, l.Cut = l.Key[:DeadLetterCut:DeadLetterCut], true
	}
	l.Headers = fitHeaders(l.Headers)
	return l
}

// identity makes the id of what the letter is about: a task is named by its id,
// a foreign one by its ids and where its record stands, a record by where it
// stands and what it holds (a topic that was made anew counts from 0 again).
func (l DeadLetter) identity(value []byte) string {
	h := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, int64(len(b))) // a hash takes everything
		h.Write(b)
	}
	part([]byte(l.Kind))
	task := l.Task
	if l.Kind == DeadLetterRecord {
		task = "" // whether it could be read changes nothing
	}
	part([]byte(task))
	if l.Kind == DeadLetterForeign {
		part([]byte(l.Run))
	} else if task == "" {
		part(l.Key)
		part(value)
	}
	if l.Kind == DeadLetterForeign || task == "" {
		var at [2]int64
		if l.Source != nil && l.Source.Topic != "" {
			part([]byte(l.Source.Topic))
			at = [2]int64{int64(l.Source.Partition), l.Source.Offset}
		} else {
			at = [2]int64{l.CreatedAt.UnixMicro()}
		}
		_ = binary.Write(h, binary.BigEndian, at)
	}
	return "dl-" + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:10]))
}

// fitText gives text as UTF-8 without control characters but line ends and tabs,
// at most limit bytes.
func fitText(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, text)
	if len(text) <= limit {
		return text
	}
	limit -= len("…")
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// DeadLetterHeaders gives the headers of a message as a [DeadLetter] keeps them:
// by name, within its limits, without the values of those that name credentials.
func DeadLetterHeaders(header map[string]string) []DeadLetterHeader {
	return DeadLetterHeaderList(func(yield func(string, []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(header)) {
			if !yield(name, []byte(header[name])) {
				return
			}
		}
	})
}

// DeadLetterHeaderList is [DeadLetterHeaders] for headers that have an order, and
// of which several may have one name: they stay as they are.
func DeadLetterHeaderList(headers iter.Seq2[string, []byte]) []DeadLetterHeader {
	var list []DeadLetterHeader
	for name, value := range headers {
		list = append(list, DeadLetterHeader{Name: name, Value: slices.Clone(value)})
	}
	return fitHeaders(list)
}

func fitHeaders(headers []DeadLetterHeader) []DeadLetterHeader {
	var kept []DeadLetterHeader
	size := 0
	for _, h := range headers {
		if NamesCredentials(h.Name) {
			h.Value = Bytes(Redacted)
		}
		if size += len(h.Name) + len(h.Value); size > deadLetterHeaderBytes || len(kept) == deadLetterHeaders {
			break
		}
		h.Name = strings.ToValidUTF8(h.Name, "\uFFFD")
		kept = append(kept, h)
	}
	return kept
}

// NamesCredentials reports whether what stands under a name may be a secret.
func NamesCredentials(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	for _, word := range []string{"authoriz", "authent", "cookie", "token", "secret", "password", "passwd", "apikey", "credential", "privatekey", "signature"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
