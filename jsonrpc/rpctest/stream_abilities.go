package rpctest

import (
	"errors"
	"os"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

type tryWriter interface{ TryWrite(p []byte) (int, error) }

type watchedWriter interface {
	WriteWatched(p []byte, watch func(on bool)) (int, error)
}

type turnTaker interface {
	Room() (calls, notifications bool)
	OnRoom(told func())
	Drop(id []byte) bool
}

func checkTryWrite(p *pair) {
	try, ok := p.a.(tryWriter)
	if !ok {
		return
	}
	// What does not go by one way goes by the other.
	p.inPortions("TryWrite and Write", func(_ int, piece []byte) (int, error) {
		n, err := try.TryWrite(piece)
		if err == nil && n < len(piece) {
			var m int
			m, err = p.a.Write(piece[n:])
			n += m
		}
		return n, err
	})
}

func checkWriteWatched(p *pair) {
	watched, ok := p.a.(watchedWriter)
	if !ok {
		return
	}
	p.inPortions("WriteWatched and Write", func(i int, piece []byte) (int, error) {
		if i%3 == 0 {
			return p.a.Write(piece)
		}
		return watched.WriteWatched(piece, func(bool) {})
	})
}

// inPortions has small messages and a big one written in portions that end anywhere, and
// expects them at the other end. write must write all of the portion with a number.
func (p *pair) inPortions(what string, write func(i int, piece []byte) (int, error)) {
	texts := append(numbered(300), large(bigMessage))
	sent := p.write(p.a, func() {
		for i, rest := 0, []byte(lines(texts)); len(rest) > 0; i++ {
			piece := rest[:min(len(rest), 1+len(rest)%(len(rest)/100+100))]
			n, err := write(i, piece)
			if err != nil || n != len(piece) {
				p.Errorf("%s of %d bytes: %d, %v", what, len(piece), n, err)
				return
			}
			overwrite(piece)
			rest = rest[n:]
		}
	})
	p.expect(p.b, texts...)
	p.await("write", sent)
}

func checkTryWriteFull(p *pair) {
	try, ok := p.a.(tryWriter)
	if !ok {
		return
	}
	var texts []string
	var rest string
	full := p.write(p.a, func() {
		for i := range floodLimit / floodMessage {
			text := large(floodMessage + i)
			texts = append(texts, text)
			n, err := try.TryWrite([]byte(text + "\n"))
			if err != nil {
				p.Errorf("TryWrite: %d, %v", n, err)
				return
			}
			if rest = (text + "\n")[n:]; rest != "" {
				if m, err := try.TryWrite([]byte(rest)); err != nil {
					p.Errorf("TryWrite without room: %d, %v", m, err)
				} else {
					rest = rest[m:]
				}
				return
			}
		}
		p.Errorf("TryWrite has no limit below %d MiB", floodLimit>>20)
	})
	p.await("return from TryWrite with a peer that reads nothing", full)
	if p.Failed() {
		return
	}
	sent := p.send(p.a, rest, `{"last":1}`+"\n")
	p.expect(p.b, append(texts, `{"last":1}`)...)
	p.await("write the rest", sent)
}

// checkRoom fills a Stream in which messages wait for their turn.
func checkRoom(p *pair) {
	turns, ok := p.a.(turnTaker)
	if !ok {
		return
	}
	told := make(chan struct{}, 1)
	turns.OnRoom(func() {
		select {
		case told <- struct{}{}:
		default: // it was told before
		}
	})
	var texts []string
	write := func(text string) {
		texts = append(texts, text)
		if n, err := p.a.Write([]byte(text + "\n")); err != nil || n != len(text)+1 {
			p.Errorf("Write of %d bytes: %d, %v", len(text)+1, n, err)
		}
	}
	full := p.write(p.a, func() {
		for i := 0; p.hasRoom(turns); i++ {
			if i == floodLimit/floodMessage {
				p.Errorf("Room says that there is some beyond %d MiB", floodLimit>>20)
				break
			}
			write(large(floodMessage + i))
		}
		write(large(floodMessage - 1)) // which a Conn had taken before
		write(`{"jsonrpc":"2.0","id":1,"result":null}`)
		late := []byte(`{"jsonrpc":"2.0","id":"late","method":"m"}` + "\n")
		if n, err := p.a.Write(late); err != nil || n != len(late) {
			p.Errorf("Write of %d bytes: %d, %v", len(late), n, err)
		}
		if !turns.Drop([]byte(`"late"`)) || turns.Drop([]byte(`"late"`)) || turns.Drop([]byte("1")) {
			p.Errorf("Drop does not say that it takes out a call that waits, and no others")
		}
	})
	p.await("write what there is room for, and then another message and an answer, with a peer that reads nothing", full)
	if p.Failed() {
		return
	}
	p.unordered = true // answers pass others
	p.expect(p.b, texts...)
	for room := false; !room && !p.Failed(); {
		p.await("tell of room when the peer has read", told)
		_, room = turns.Room()
	}
}

// hasRoom says that there is room for a notification, also after a pause in which what waits
// goes as far as it does.
func (p *pair) hasRoom(turns turnTaker) bool {
	_, room := turns.Room()
	if !room {
		p.ended(nil)
		_, room = turns.Room()
	}
	return room
}

type readDeadliner interface{ SetReadDeadline(t time.Time) error }

func checkDeadline(p *pair) {
	d, ok := p.b.(readDeadliner)
	if !ok {
		return
	}
	p.interrupt(d, time.Now().Add(p.pause)) // a deadline that was there before Read
	p.interrupt(d, time.Now().Add(-time.Second))

	p.deadline(d, time.Time{})
	var err error
	read := p.start(func() { _, err = p.b.Read() })
	if p.ended(read) {
		p.Fatalf("Read after a deadline that was taken back: %v", err)
	}
	p.deadline(d, time.Now()) // one that comes while Read waits
	p.await("return from Read at its deadline", read)
	if !p.Failed() {
		p.isDeadline(err)
	}

	p.deadline(d, time.Time{})
	p.send(p.a, `{"again":1}`+"\n")
	p.expect(p.b, `{"again":1}`)
}

// interrupt sets a deadline and reads until it.
func (p *pair) interrupt(d readDeadliner, t time.Time) {
	p.Helper()
	p.deadline(d, t)
	_, err := p.read(p.b)
	p.isDeadline(err)
	if early := time.Until(t); early > 0 {
		p.Fatalf("Read ended %v before its deadline", early)
	}
}

func (p *pair) isDeadline(err error) {
	p.Helper()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		p.Fatalf("Read past its deadline: %v, want os.ErrDeadlineExceeded", err)
	}
}

func checkDeadlineLoss(p *pair) {
	d, ok := p.b.(readDeadliner)
	if !ok {
		return
	}
	for _, text := range append(numbered(20), large(bigMessage/4), `{"last":1}`) {
		half := len(text) / 2
		p.send(p.a, text[:half])
		p.deadline(d, time.Now().Add(p.pause/10))
		first, err := p.readParts()
		p.isDeadline(err)
		p.deadline(d, time.Time{})
		p.send(p.a, text[half:]+"\n")
		m, err := p.read(p.b)
		if err != nil || first+m.text != text {
			p.Fatalf("after an interrupted Read: %s, %v, want %s", short(first+m.text), err, short(text))
		}
	}
}

// readParts reads parts of one message from b until an error.
func (p *pair) readParts() (string, error) {
	var text []byte
	var err error
	p.within("return from Read at its deadline", func() {
		for err == nil {
			var part jsonrpc.Part
			part, err = p.b.Read()
			text = append(text, part.Data...)
		}
	})
	if p.Failed() {
		p.FailNow()
	}
	return string(text), err
}
