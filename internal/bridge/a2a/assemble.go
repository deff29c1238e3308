package a2a

import (
	"bytes"
	"unicode/utf8"

	"github.com/parley-project/parley/internal/bridge"
)

// maxArtifacts bounds the artifacts of one assembled task.
const maxArtifacts = 1024

// assembly puts a task together from the events of its stream: artifacts are
// kept by their id; a chunk with append adds its parts, any other replaces what
// was there (A2A 1.0 §4.2.2).
type assembly struct {
	version Version
	// limit bounds what is kept, in bytes; over is set beyond it.
	limit int
	over  bool
	// whole: nothing came before the first event, or it was a snapshot.
	whole bool
	// late: the task is older than its first event, and no snapshot has come since.
	late bool

	head      []byte // members of the task but status and artifacts, each with a comma behind it
	status    []byte
	artifacts []piece
	size      int
}

// piece is one artifact: its members but the parts, each with a comma behind it,
// and the parts without brackets.
type piece struct {
	id          string
	head, parts []byte
}

// begin names a task of which there may be no snapshot.
func (s *assembly) begin(taskID, contextID string) {
	if s.version != V10 {
		s.head = append(s.head, `"kind":"task",`...)
	}
	s.head = append(s.head, `"id":`...)
	s.head = append(quote(s.head, taskID), ',')
	if contextID != "" {
		s.head = append(s.head, `"contextId":`...)
		s.head = append(quote(s.head, contextID), ',')
	}
}

// take adds what an event tells.
func (s *assembly) take(a *answer) {
	switch a.sort {
	case sortTask:
		s.reset(a)
	case sortStatus:
		s.status = bytes.Clone(a.status)
	case sortArtifact:
		s.add(a.artifact, string(a.appendTo) == "true")
	case sortMessage:
	}
	s.over = s.over || s.size+len(s.status) > s.limit
	if s.over {
		s.artifacts = nil
	}
}

// reset begins anew with a snapshot.
func (s *assembly) reset(a *answer) {
	*s = assembly{version: s.version, limit: s.limit, whole: true, status: bytes.Clone(a.status)}
	for name, value := range bridge.Members(a.raw) {
		switch string(name) {
		case "status":
		case "artifacts":
			for artifact := range bridge.Elements(value) {
				s.keep(artifact, pieceOf(artifact)) // each by itself, also of those that have no id
			}
		default:
			s.head = appendMember(s.head, name, value)
		}
	}
	s.size += len(s.head)
}

// add takes one artifact, or a chunk of one.
func (s *assembly) add(artifact []byte, more bool) {
	if s.over {
		return
	}
	p := pieceOf(artifact)
	for i := range s.artifacts {
		have := &s.artifacts[i]
		if have.id != p.id {
			continue
		}
		s.size += len(artifact)
		if !more {
			s.size -= len(have.head) + len(have.parts)
			*have = p
			return
		}
		if len(have.parts) > 0 && len(p.parts) > 0 {
			have.parts = append(have.parts, ',')
		}
		have.parts = append(have.parts, p.parts...)
		return
	}
	s.keep(artifact, p)
}

// keep takes an artifact beside those that are there.
func (s *assembly) keep(artifact []byte, p piece) {
	if s.over = s.over || len(s.artifacts) >= maxArtifacts; s.over {
		return // each is compared with all before it
	}
	s.size += len(artifact)
	s.artifacts = append(s.artifacts, p)
}

func pieceOf(artifact []byte) piece {
	var p piece
	for name, value := range bridge.Members(artifact) {
		switch string(name) {
		case "parts":
			if len(value) > 1 && value[0] == '[' {
				p.parts = bytes.Clone(bytes.TrimSpace(value[1 : len(value)-1]))
			}
			continue
		case "artifactId":
			p.id, _ = bridge.Text(value)
		}
		p.head = appendMember(p.head, name, value)
	}
	return p
}

// appendMember appends a member with a comma behind it.
func appendMember(b, name, value []byte) []byte {
	b = quote(b, name)
	b = append(b, ':')
	b = append(b, value...)
	return append(b, ',')
}

// complete says whether nothing of the task's output is missing, as far as the
// events tell.
func (s *assembly) complete() bool { return s.whole && !s.over }

// task is the task as it stands.
func (s *assembly) task() []byte {
	b := make([]byte, 0, s.size+len(s.head)+len(s.status)+64)
	b = append(b, '{')
	b = append(b, s.head...)
	b = append(b, `"status":`...)
	b = append(b, s.status...)
	if len(s.artifacts) > 0 {
		b = append(b, `,"artifacts":[`...)
		for i, p := range s.artifacts {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '{')
			b = append(b, p.head...)
			b = append(b, `"parts":[`...)
			b = append(b, p.parts...)
			b = append(b, `]}`...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// maxPiece bounds one piece of output, in bytes (see [bridge.Chunk]).
const maxPiece = 32 << 10

// chunks is what an artifact event brings, in pieces of at most 32 KiB. Other
// parts than texts that are larger are left out: they come with the task's end.
func (a *answer) chunks() []bridge.Chunk {
	c := bridge.Chunk{Append: string(a.appendTo) == "true", Last: string(a.last) == "true"}
	for name, value := range bridge.Members(a.artifact) {
		switch string(name) {
		case "artifactId":
			id, _ := bridge.Text(value)
			c.Artifact = limited(id)
		case "name":
			name, _ := bridge.Text(value)
			c.Name = limited(name)
		}
	}
	parts := partsOf(a.artifact)
	texts, _ := a.contents(parts, "event")
	text, _ := bridge.Text(joined(texts))
	if a.agent != nil { // before a credential is cut through
		text = bridge.Redact(*a.agent, []byte(text), len(text))
	}
	if hasMore(parts) {
		c.Data = otherParts(parts)
	}
	var all []bridge.Chunk
	for {
		next := c
		next.Text, text = split(text, maxPiece-len(c.Data))
		next.Last = c.Last && text == ""
		all = append(all, next)
		if text == "" {
			return all
		}
		c.Append, c.Data = true, nil
	}
}

// otherParts is the JSON array of the parts that are no texts, or nil if it is
// too large.
func otherParts(parts []byte) []byte {
	b := []byte{'['}
	for p := range bridge.Elements(parts) {
		if contentOf(p).text != nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		if b = append(b, p...); len(b) >= maxPiece {
			return nil
		}
	}
	return append(b, ']')
}

// split cuts text after at most limit bytes, between characters.
func split(text string, limit int) (head, tail string) {
	if len(text) <= limit {
		return text, ""
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit], text[limit:]
}
