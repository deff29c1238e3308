package parley

import "fmt"

// String gives "file:line:col: code: text", with the suggestion in
// parentheses. The file, or the position, is left out if it is not known.
func (p Problem) String() string {
	at := ""
	if p.File != "" {
		at = p.File + ":"
	}
	if p.Line > 0 {
		at += fmt.Sprintf("%d:%d:", p.Line, p.Col)
	}
	if at != "" {
		at += " "
	}
	text := p.Text
	if p.Suggestion != "" {
		text += " (" + p.Suggestion + ")"
	}
	return at + p.Code + ": " + text
}
