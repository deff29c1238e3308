package verification

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/parley-project/parley/internal/zone"
)

const (
	// maxFile bounds a file that is posted, in bytes.
	maxFile = 10_000_000
	// maxText bounds what is posted as messages, in bytes: nobody reads fifty. A
	// longer text becomes a file.
	maxText = 50 * maxMessage
	// maxName bounds the name of a file, in bytes.
	maxName = 255
	// fileTooLarge is why a file is not posted that is too large.
	fileTooLarge = "file too large"
)

// answer is what is posted to a thread, in the form in which it is stored: the
// messages as they are sent, so that what was posted never depends on a newer
// program.
type answer struct {
	Parts []string `json:"parts,omitempty"`
	File  *file    `json:"file,omitempty"`
}

// file is posted after the messages.
type file struct {
	Name    string `json:"name"`
	Content []byte `json:"content"`
	// ID is Slack's, once it is uploaded and before it is shared.
	ID string `json:"id,omitempty"`
}

// answerOf gives the answer with a text of ours.
func answerOf(text string) answer { return answer{Parts: []string{escape(text)}} }

// len is how many posts it takes.
func (a answer) len() int {
	if a.File != nil {
		return len(a.Parts) + 1
	}
	return len(a.Parts)
}

func (a answer) encode() []byte {
	b, err := json.Marshal(a)
	if err != nil { // strings and bytes
		return []byte("{}")
	}
	return b
}

func readAnswer(b []byte) (a answer, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return answer{}, fmt.Errorf("the answer of a question: %w", err)
	}
	return a, nil
}

// answerFrom gives the answer with the result of the other zone, empty if there is
// nothing to post. long is the message beside a text that becomes a file. dropped
// says what of the result is not posted.
func answerFrom(r *zone.Result, long string) (a answer, dropped string) {
	text, f := strings.TrimSpace(r.ResponseText), r.FileArtifact
	if len(text) > maxText && (f != nil || len(text) > maxFile) {
		text, dropped = strings.ToValidUTF8(text[:maxText], "")+" …", "text too long"
	}
	if len(text) > maxText+len(" …") {
		return answer{Parts: []string{escape(long)}, File: &file{Name: "answer.md", Content: []byte(text)}}, ""
	}
	if text != "" {
		a.Parts = split(mrkdwn(text), maxMessage)
	}
	switch {
	case r.FileRefused == zone.FileTooLarge: // by whoever read the response
		return a, fileTooLarge
	case r.FileRefused != "":
		return a, "file malformed"
	case f == nil:
		return a, dropped
	case len(f.Parts) != 1 || len(f.Parts[0].ContentBase64) == 0:
		return a, "file empty"
	case len(f.Parts[0].ContentBase64) > maxFile:
		return a, fileTooLarge
	}
	a.File = &file{Name: fileName(f.Parts[0].FileName, f.Name), Content: f.Parts[0].ContentBase64}
	return a, dropped
}

// fileName gives a name without folders and signs that nobody sees.
func fileName(names ...string) string {
	for _, name := range names {
		name = path.Base(strings.ReplaceAll(name, `\`, "/"))
		name = strings.TrimSpace(strings.Map(func(r rune) rune {
			// A sign that turns the direction makes "exe.pdf" of what ends with "fdp.exe".
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
				return -1
			}
			return r
		}, name))
		if name != "" && name != "." && name != "/" && name != ".." {
			return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
		}
	}
	return "file"
}
