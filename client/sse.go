package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// message is one server-sent event. Data and Name are empty if the stream did
// not name them.
type message struct {
	ID, Name string
	Data     []byte
}

// sseReader reads a text/event-stream. It is used by one goroutine.
type sseReader struct {
	r *bufio.Reader
	// limit bounds the bytes of one message.
	limit int
	// retry is the delay that the server asked for; 0 is none.
	retry time.Duration
	// first is false once the byte order mark was looked for.
	began bool
	// skipLF: the line before ended with CR, so a LF that follows belongs to it.
	skipLF bool
}

func newSSEReader(r io.Reader, limit int) *sseReader {
	return &sseReader{r: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next gives the next message that has data. A stream that ends within a
// message drops it, as the format demands: io.EOF then as at a clean end. A
// message beyond the limit is an error of [parley.CodeLimit].
func (s *sseReader) next() (message, error) {
	var m message
	var data []byte
	size := 0
	for {
		line, err := s.line(s.limit - size)
		if err != nil {
			return message{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if data == nil {
				m, size = message{}, 0
				continue
			}
			m.Data = data[:len(data)-1]
			return m, nil
		}
		name, value := field(line)
		switch name {
		case "data":
			data = append(append(data, value...), '\n')
		case "event":
			m.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				m.ID = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				s.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// field splits a line. A comment has the empty name.
func field(line []byte) (name string, value []byte) {
	n, v, found := bytes.Cut(line, []byte(":"))
	if found {
		v = bytes.TrimPrefix(v, []byte(" "))
	}
	return string(n), v
}

// line reads up to CR, LF or CR LF, which is not part of what it gives.
func (s *sseReader) line(limit int) ([]byte, error) {
	var line []byte
	for {
		b, err := s.r.ReadByte()
		if err != nil {
			return nil, err
		}
		if s.skipLF {
			s.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			s.skipLF = b == '\r'
			if !s.began {
				s.began = true
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		}
		if len(line) >= limit {
			return nil, parley.Errorf(parley.CodeLimit, "the server sent an event of more than %d bytes", s.limit)
		}
		line = append(line, b)
	}
}

// ended reports whether err only says that a stream is over.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
