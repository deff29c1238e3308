package a2a

import (
	"bufio"
	"bytes"
	"context"
	"io"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// streamBody is what server-sent events are read from. Close may be called
// during a Read.
type streamBody interface {
	io.Reader
	Close()
}

// events reads server-sent events (WHATWG HTML §9.2). Names and ids of events
// are passed over: a JSON-RPC error inside says by itself what it is, and no
// agent replays by id. Comments are signs of life of the connection, not of the
// task.
type events struct {
	body  streamBody
	lines *bufio.Reader
	// limit bounds one event in bytes.
	limit int
	// begun: the first line was read. afterCR: the former one ended in CR, to which
	// an LF may belong.
	begun, afterCR bool
}

// newEvents reads from body, which close closes.
func newEvents(body streamBody, limit int) *events {
	return &events{body: body, lines: bufio.NewReaderSize(body, 4<<10), limit: limit}
}

// next implements [eventSource]. The end of ctx closes the stream.
func (e *events) next(ctx context.Context) ([]byte, error) {
	defer context.AfterFunc(ctx, e.body.Close)()
	var data []byte
	some := false
	for read := 0; ; {
		line, err := e.line(e.limit - read)
		read += len(line)
		if err != nil {
			// An event that no empty line ends is not complete, and dropped.
			return nil, err
		}
		if len(line) == 0 {
			if len(data) > 0 {
				return data, nil
			}
			read, some = 0, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if some {
			data = append(data, '\n')
		}
		data, some = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
	}
}

// line gives the next line without its end (LF, CRLF or CR), which is valid
// until the next call, and at most limit bytes of it.
func (e *events) line(limit int) ([]byte, error) {
	var long []byte
	for {
		if _, err := e.lines.Peek(1); err != nil {
			return nil, err
		}
		part, _ := e.lines.Peek(e.lines.Buffered()) // as much as has come
		if e.afterCR && part[0] == '\n' {
			e.afterCR = false // it is of the former line's end
			_, _ = e.lines.Discard(1)
			continue
		}
		end := bytes.IndexAny(part, "\r\n")
		size := end + 1
		if e.afterCR = end >= 0 && part[end] == '\r'; end < 0 {
			end, size = len(part), len(part)
		}
		if len(long)+end > limit {
			return nil, tooLong(e.limit)
		}
		_, _ = e.lines.Discard(size) // what was peeked stays until the next read
		if part = part[:end]; long != nil || size == end {
			long = append(long, part...)
			part = long
		}
		if size > end {
			return e.bare(part), nil
		}
	}
}

// bare takes the byte order mark off the first line.
func (e *events) bare(line []byte) []byte {
	if e.begun {
		return line
	}
	e.begun = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

func tooLong(limit int) *bridge.ExchangeError {
	e := parley.Errorf(parley.CodeLimit, "an event of the stream is larger than %d bytes (max_response) and was not read to its end", limit)
	return &bridge.ExchangeError{Disposition: bridge.Lost, Err: e.WithDetails(map[string]any{"limit": "max_response", "value": limit})}
}

// close implements [eventSource].
func (e *events) close() { e.body.Close() }
