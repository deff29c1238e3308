package rpctest

import (
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// Sizes of the checks, in bytes.
const (
	bigMessage = 2 << 20  // comes in parts from every Stream with a bounded buffer
	floodEach  = 1 << 20  // goes each way at the same time
	floodLimit = 32 << 20 // a Stream that takes so much without a reader keeps everything
)

// streamChecks returns the rules of the contract, in the order of its text.
func streamChecks() []streamCheck {
	return []streamCheck{
		{"order", true, checkOrder},
		{"several messages in one Write", true, checkSeveral},
		{"one message over several Writes", true, checkPortions},
		{"bytes are kept", true, checkBytes},
		{"large messages in parts", true, checkLarge},
		{"empty messages are not returned", true, checkEmpty},
		{"Data is borrowed until the next Read", true, checkBorrowed},
		{"More is no empty promise", true, checkMore},
		{"EOF between messages", true, checkEOF},
		{"EOF within a message", true, func(p *pair) { checkCut(p, `{"a":`) }},
		{"EOF within a large message", true, func(p *pair) { checkCut(p, `{"cut":"`+strings.Repeat("x", bigMessage)) }},
		{"Close ends Read", true, checkCloseRead},
		{"Close ends Write", true, checkCloseWrite},
		{"Close again", true, checkCloseAgain},
		{"nothing works after Close", true, checkAfterClose},
		{"Read and Write do not wait for each other", true, checkIndependent},
		{"both directions full", false, checkFullDuplex},
		{"Read, Write and Close side by side", false, checkSideBySide},
		{"TryWrite writes what it says", true, checkTryWrite},
		{"TryWrite does not wait", true, checkTryWriteFull},
		{"WriteWatched writes as Write does", true, checkWriteWatched},
		{"Room is what Write has", true, checkRoom},
		{"SetReadDeadline interrupts Read", true, checkDeadline},
		{"an interrupted Read loses nothing", true, checkDeadlineLoss},
	}
}

func checkOrder(p *pair) {
	texts := numbered(300)
	writes := make([]string, len(texts))
	for i, text := range texts {
		writes[i] = text + "\n"
	}
	p.send(p.a, writes...)
	p.expect(p.b, texts...)
}

func checkSeveral(p *pair) {
	texts := numbered(500) // 170 kB, more than usual buffers hold
	p.send(p.a, lines(texts))
	p.expect(p.b, texts...)
}

func checkPortions(p *pair) {
	byByte := strings.Split(lines(numbered(3)), "")
	p.send(p.a, byByte...)
	p.expect(p.b, numbered(3)...)

	// The newline by itself, a message that begins in another one's Write, and
	// one that ends there.
	p.send(p.a, `{"a":1}`, "\n", `{"b":2}`+"\n"+`{"c"`, `:3}`+"\n"+`{"d":4}`+"\n"+`{"e":`, `5}`, "\n")
	p.expect(p.b, `{"a":1}`, `{"b":2}`, `{"c":3}`, `{"d":4}`, `{"e":5}`)
}

func checkBytes(p *pair) {
	texts := []string{
		`{"text":"é€😀\u0000\n"}`,
		`["Content-Length: 5\r\n\r\n","data: x\n\n","\\"]`,
		"{\"a\":\r1,\t\"b\" : [ ] }",
		`{]`,
		`7`,
	}
	p.send(p.a, lines(texts))
	p.expect(p.b, texts...)
}

func checkLarge(p *pair) {
	for _, n := range []int{4 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 256 << 10, 256<<10 + 1, bigMessage} {
		texts := []string{`{"before":1}`, large(n), `{"after":1}`}
		p.send(p.a, lines(texts))
		p.expect(p.b, texts...)
		if p.Failed() {
			return
		}
	}
	text := large(bigMessage) + "\n"
	third := len(text) / 3
	p.send(p.a, text[:third], text[third:2*third], text[2*third:])
	p.expect(p.b, strings.TrimSuffix(text, "\n"))
}

func checkEmpty(p *pair) {
	p.send(p.a, "\n", "\n\n"+`{"a":1}`+"\n\n", " \n", `{"b":2}`+"\n", "\n")
	got := p.expect(p.b, `{"a":1}`, `{"b":2}`)
	p.send(p.a, `{"c":3}`+"\n")
	if got[1].more {
		p.Errorf("More before an empty message that is not returned: an answer would wait for nothing")
	}
	p.expect(p.b, `{"c":3}`)
}

func checkBorrowed(p *pair) {
	texts := numbered(100)
	p.send(p.a, texts[0]+"\n")
	var part jsonrpc.Part
	var err error
	p.within("read a message", func() { part, err = p.b.Read() })
	if err != nil || p.Failed() {
		p.Fatalf("Read: %v", err)
	}
	before := string(part.Data)
	// More arrives while the reader still looks at the first message.
	p.ended(p.send(p.a, lines(texts[1:])))
	p.ended(nil)
	if string(part.Data) != before {
		p.Fatalf("Data became %s before the next Read, it was %s", short(string(part.Data)), short(before))
	}
	if !part.End {
		m, err := p.read(p.b)
		if before += m.text; err != nil {
			p.Fatalf("Read: %v", err)
		}
	}
	if before != texts[0] {
		p.Fatalf("the message is %s, want %s", short(before), short(texts[0]))
	}
	p.expect(p.b, texts[1:]...)
}

func checkMore(p *pair) {
	for _, n := range []int{1, 2, 50, 400} {
		texts := numbered(n)
		p.send(p.a, lines(texts))
		got := p.expect(p.b, texts...)
		if got[n-1].more {
			p.Errorf("More after the last of %d messages: an answer would wait for nothing", n)
		}
	}
	// A More may rest on the beginning of a message, but not on nothing.
	text := large(bigMessage)
	p.send(p.a, text+"\n")
	if m := p.expect(p.b, text)[0]; m.more {
		p.Errorf("More after a large message that came alone")
	}
}

func checkEOF(p *pair) {
	texts := numbered(50)
	sent := p.send(p.a, lines(texts))
	p.expect(p.b, texts[:10]...)
	p.await("write 50 messages", sent)
	if p.unordered {
		p.expect(p.b, texts[10:]...) // Close does not wait for answers under way
	}
	p.close(p.a)
	if !p.unordered {
		p.expect(p.b, texts[10:]...)
	}
	p.expectEOF(p.b)
}

func checkCut(p *pair, cut string) {
	sent := p.send(p.a, `{"whole":1}`+"\n", cut)
	p.expect(p.b, `{"whole":1}`)
	var m message
	var err error
	read := p.start(func() { m, err = readMessage(p.b) })
	p.await("write half a message", sent)
	p.close(p.a)
	p.await("read to the end", read)
	if p.Failed() {
		return
	}
	var begun *begunError
	switch {
	case err == nil:
		p.Fatalf("a message that was cut off came as %s", short(m.text))
	case errors.As(err, &begun) && errors.Is(err, io.EOF):
		p.Fatalf("the peer closed within a message: io.EOF %v, want io.ErrUnexpectedEOF", err)
	}
}

func checkCloseRead(p *pair) {
	var err error
	done := p.start(func() { _, err = p.b.Read() })
	if p.ended(done) {
		p.Fatalf("Read with nothing to read: %v", err)
	}
	p.close(p.b)
	p.await("return from Read after Close", done)
	if !p.Failed() && err == nil {
		p.Errorf("Read, ended by Close, returned no error")
	}
}

func checkCloseWrite(p *pair) {
	progress := make(chan int, floodLimit/floodMessage+1)
	var err error
	done := p.write(p.a, func() {
		text := []byte(large(floodMessage-1) + "\n")
		for n := 0; n < floodLimit && err == nil; n += len(text) {
			progress <- n
			_, err = p.a.Write(text)
		}
	})
	for stuck := false; !stuck; {
		select {
		case <-progress:
		case <-done:
			p.Fatalf("Write did not wait for a peer that reads nothing: error %v, or no limit below %d MiB", err, floodLimit>>20)
		case <-time.After(4 * p.pause):
			stuck = true
		}
	}
	p.close(p.a)
	p.await("return from Write after Close", done)
	if !p.Failed() && err == nil {
		p.Errorf("Write, ended by Close, returned no error")
	}
}

// floodMessage is the size of the messages of a flood.
const floodMessage = 16 << 10

func checkCloseAgain(p *pair) {
	p.send(p.a, `{"a":1}`+"\n")
	p.expect(p.b, `{"a":1}`)
	for _, s := range []jsonrpc.Stream{p.a, p.b} {
		p.within("close from several goroutines, and again", func() {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					defer p.caught("Close")
					_ = s.Close()
				})
			}
			all.Wait()
			defer p.caught("Close")
			_ = s.Close()
		})
	}
}

// caught, deferred, makes a panic a failure of the check.
func (p *pair) caught(what string) {
	if r := recover(); r != nil {
		p.Errorf("%s panicked: %v", what, r)
	}
}

func checkAfterClose(p *pair) {
	p.close(p.a)
	p.within("fail a Write after Close", func() {
		if _, err := p.a.Write([]byte(`{"a":1}` + "\n")); err == nil {
			p.Errorf("Write after Close returned no error")
		}
	})
	if m, err := p.read(p.a); err == nil {
		p.Errorf("Read after Close returned %s", short(m.text))
	}
	if try, ok := p.a.(tryWriter); ok {
		p.within("fail a TryWrite after Close", func() {
			if n, err := try.TryWrite([]byte(`{"a":1}` + "\n")); n > 0 || err == nil {
				p.Errorf("TryWrite after Close: %d, %v", n, err)
			}
		})
	}
}

func checkIndependent(p *pair) {
	read := p.start(func() { p.count(p.b, []string{`{"to":"b"}`}) })
	if p.ended(read) {
		p.Fatalf("Read with nothing to read ended")
	}
	p.send(p.b, `{"to":"a"}`+"\n")
	p.expect(p.a, `{"to":"a"}`)
	p.send(p.a, `{"to":"b"}`+"\n")
	p.await("read what came while Write was used", read)

	// a does not read this yet.
	texts := []string{large(bigMessage), large(bigMessage)}
	stuck := p.send(p.b, lines(texts))
	p.ended(stuck)
	p.send(p.a, `{"to":"b"}`+"\n")
	p.expect(p.b, `{"to":"b"}`)
	p.expect(p.a, texts...)
}

func checkFullDuplex(p *pair) {
	texts := make([]string, floodEach/floodMessage)
	for i := range texts {
		texts[i] = large(floodMessage + i)
	}
	written := []<-chan struct{}{p.send(p.a, lines(texts)), p.send(p.b, lines(texts))}
	// Writers first: whoever reads only when it has nothing to write would
	// never get here.
	p.ended(nil)
	read := []<-chan struct{}{p.start(func() { p.count(p.a, texts) }), p.start(func() { p.count(p.b, texts) })}
	for _, done := range append(written, read...) {
		p.await("carry 1 MiB each way at the same time", done)
	}
}

// count reads messages until all of texts came.
func (p *pair) count(s jsonrpc.Stream, texts []string) {
	missing := make(map[string]int)
	for _, text := range texts {
		missing[text]++
	}
	for i, want := range texts {
		m, err := readMessage(s)
		if err != nil {
			p.Errorf("Read of message %d of %d: %v", i+1, len(texts), err)
			return
		}
		if missing[m.text]--; missing[m.text] < 0 || !p.unordered && m.text != want {
			p.Errorf("message %d of %d is %s, want %s", i+1, len(texts), short(m.text), short(want))
			return
		}
	}
}

func checkSideBySide(p *pair) {
	texts := numbered(200)
	enough := make(chan struct{}, 2)
	for _, s := range []jsonrpc.Stream{p.a, p.b} {
		p.write(s, func() { // until Close makes it fail
			for {
				for _, text := range texts {
					if _, err := s.Write([]byte(text + "\n")); err != nil {
						return
					}
				}
			}
		})
		p.start(func() {
			for n := 0; ; n++ {
				if _, err := readMessage(s); err != nil {
					return
				}
				if n == 2*len(texts) {
					enough <- struct{}{}
				}
			}
		})
	}
	for range 2 {
		select {
		case <-enough:
		case <-time.After(p.patience):
			p.Fatalf("did not carry 400 messages each way within %v", p.patience)
		}
	}
	// run closes both, while both write and read, and waits for them.
}
