package jsonrpc

// A skimmer finds out whose a message is that is skipped, since it is too long: its
// own member "id", wherever that stands, as in the specification's examples it is the
// last one; and whether it has a result or an error. Of a batch it finds the ids of all
// responses. It takes the message in pieces of any size and keeps no more of it than
// ids. Behind a fault it looks for nothing: what seems to be the message's own there may
// be part of something else.
type skimmer struct {
	id       []byte   // nil when it has not come yet
	response bool     // it has a result or an error
	batch    [][]byte // ids of the responses in a batch, most of them at most
	most     int

	check valueChecker
	place skimPlace
	depth int // of arrays and objects that are open
	own   int // the depth of own members: more in a batch
	// text: inside a string; escaped: behind a backslash in it.
	text, escaped bool
	// name and value are the beginnings of those of the own member at hand.
	name, value []byte
}

// maxSkimmed is more than the longest id of our calls has, in bytes.
const maxSkimmed = 64

// skimPlace says what is being skipped.
type skimPlace uint8

const (
	skimStart   skimPlace = iota // nothing has come yet
	skimName                     // what stands before the colon of an own member
	skimValue                    // what stands behind it
	skimRest                     // the rest of an entry of a batch of which all is known
	skimBetween                  // what stands between the objects in a batch
	skimDone                     // what is of no use: all is known, or can't be known any more
)

func newSkimmer(maxDepth int) skimmer { return skimmer{check: valueChecker{maxDepth: maxDepth}} }

// take skips the next piece.
func (s *skimmer) take(piece []byte) {
	if s.place == skimDone {
		return
	}
	n, err := s.check.step(piece, false)
	for _, c := range piece[:n] {
		switch {
		case s.place == skimDone:
			return
		case s.text:
			s.inText(c)
		case c == '"':
			s.text = true
			s.keep(c)
		default:
			s.outside(c)
		}
	}
	if err != nil {
		s.place = skimDone
	}
}

// inText takes a byte of a string.
func (s *skimmer) inText(c byte) {
	s.keep(c)
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.text = false
	}
}

// outside takes a byte that is in no string.
func (s *skimmer) outside(c byte) {
	switch {
	case isSpace(c):
	case s.place == skimStart && c != '{' && c != '[':
		s.place = skimDone // no JSON-RPC
	case c == '{' || c == '[':
		s.depth++
		s.open(c)
	case c == '}' || c == ']':
		if s.depth--; s.depth == s.own-1 {
			s.endMessage()
		}
		if s.depth == 0 {
			s.place = skimDone
		}
	case s.depth == s.own && c == ':' && s.place == skimName:
		s.place = skimValue
		s.response = s.response || s.named(`"result"`) || s.named(`"error"`)
	case s.depth == s.own && c == ',' && s.place == skimValue:
		s.endMember()
	default:
		s.keep(c)
	}
}

// open is told of an array or object that begins.
func (s *skimmer) open(c byte) {
	switch {
	case s.place == skimStart && c == '[':
		s.own, s.place = 2, skimBetween
	case s.place == skimStart:
		s.own, s.place = 1, skimName
	case s.place == skimBetween && s.depth == s.own && c == '{':
		s.place = skimName
	}
}

// endMessage is told when the message, or an entry of the batch, is there as a whole.
func (s *skimmer) endMessage() {
	if s.place == skimBetween { // an entry that is no object
		return
	}
	s.endMember()
	if s.own == 1 {
		return
	}
	if s.id != nil && s.response && len(s.batch) < s.most {
		s.batch = append(s.batch, s.id)
	}
	s.id, s.response, s.place = nil, false, skimBetween
}

// keep keeps a byte of an own member's name, or of its value, if that is no array or
// object.
func (s *skimmer) keep(c byte) {
	switch {
	case s.depth != s.own:
	case s.place == skimName && len(s.name) < maxSkimmed:
		s.name = append(s.name, c)
	case s.place == skimValue && len(s.value) < maxSkimmed:
		s.value = append(s.value, c)
	}
}

func (s *skimmer) named(name string) bool { return string(s.name) == name }

// endMember is told when an own member is there as a whole.
func (s *skimmer) endMember() {
	if s.named(`"id"`) {
		s.id = append([]byte(nil), s.value...)
	}
	s.name, s.value, s.place = s.name[:0], s.value[:0], skimName
	if s.id != nil && s.response {
		s.place = skimDone
		if s.own > 1 {
			s.place = skimRest
		}
	}
}
