package rpcws_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestMessages sends messages of every size class both ways, in one call of
// Write and over several (RPC-13).
func TestMessages(t *testing.T) {
	client, server := pair(t, rpcws.DialConfig{}, rpcws.AcceptConfig{})
	sizes := []int{1, 125, 126, 4096, 65535, 65536, 256 << 10, 256<<10 + 1, 1 << 20, 1<<20 + 1, 3 << 20}
	for name, ends := range map[string][2]jsonrpc.Stream{"client to server": {client, server}, "server to client": {server, client}} {
		for _, pieces := range []int{1, 3} {
			for _, size := range sizes {
				text := strings.Repeat("0123456789abcde", size/15+1)[:size]
				sent := make(chan error, 1)
				go func() {
					line, err := text+"\n", error(nil)
					for i := 0; i < pieces && err == nil; i++ {
						n := len(line) / (pieces - i)
						_, err = ends[0].Write([]byte(line[:n]))
						line = line[n:]
					}
					sent <- err
				}()
				if got := read(t, ends[1]); got != text {
					t.Errorf("%s: %d bytes in %d pieces arrived as %d bytes", name, size, pieces, len(got))
				}
				if err := <-sent; err != nil {
					t.Errorf("%s: %d bytes in %d pieces: %v", name, size, pieces, err)
				}
			}
		}
	}
}

// TestOneFrameEach looks at the frames on the wire: one text frame for each
// message, none for a blank line, fragments for a large message.
func TestOneFrameEach(t *testing.T) {
	peer, server := rawPair(t, rpcws.AcceptConfig{})
	write(t, server, "{}\n\n[1]\n")
	for _, want := range []string{"{}", "[1]"} {
		if first, payload := peer.receive(t); first != fin|opText || payload != want {
			t.Errorf("got %#x %q, want a text frame with %q", first, payload, want)
		}
	}
	large := strings.Repeat("x", 1<<20+5)
	go server.Write([]byte(large + "\n{}\n"))
	var got strings.Builder
	for i := 0; ; i++ {
		first, payload := peer.receive(t)
		got.WriteString(payload)
		if want := map[bool]byte{true: opText, false: opContinuation}[i == 0]; first&^fin != want {
			t.Fatalf("fragment %d has opcode %d", i, first&^fin)
		}
		if len(payload) > 64<<10 {
			t.Errorf("fragment of %d bytes", len(payload))
		}
		if first&fin != 0 {
			break
		}
	}
	if got.String() != large {
		t.Errorf("%d bytes arrived as %d", len(large), got.Len())
	}
	if first, payload := peer.receive(t); first != fin|opText || payload != "{}" {
		t.Errorf("after it: %#x %q", first, payload)
	}
}

// TestWrittenTogether counts the writes to the socket: frames of one Write
// leave together, control frames at once.
func TestWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		counting := &countingConn{}
		network.wrap = func(c net.Conn) net.Conn {
			counting.Conn = c
			return counting
		}
		accepted := network.accepting(t, rpcws.AcceptConfig{})
		client, err := rpcws.Dial(t.Context(), "ws://x/", rpcws.DialConfig{HTTPClient: network.client()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server := <-accepted
		// Again and again, since frames that are not held together leave in one
		// write too when the goroutine that writes them is late.
		for range 25 {
			before := counting.writes.Load()
			const count = 2000 // 8 kB of frames, less than is read at once
			var writing sync.WaitGroup
			writing.Go(func() { server.Write(bytes.Repeat([]byte("{}\n"), count)) })
			for i := range count {
				_, more, err := message(client)
				if err != nil {
					t.Fatal(err)
				}
				if more != (i < count-1) {
					t.Fatalf("message %d: More is %t", i, more)
				}
			}
			writing.Wait() // one Write at a time, as the Stream demands
			if n := counting.writes.Load() - before; n != 1 {
				t.Errorf("%d messages in one Write left in %d writes", count, n)
			}
		}
	})
}

// TestMore says what More promises: a message has begun to arrive. A control
// frame is none.
func TestMore(t *testing.T) {
	peer, server := rawPair(t, rpcws.AcceptConfig{})
	for _, c := range []struct {
		name string
		next []byte
		more bool
	}{
		{"nothing", nil, false},
		{"a ping", appendFrame(nil, fin|opPing, "x"), false},
		{"a message", appendFrame(nil, fin|opText, "2"), true},
		{"the first byte of a frame", []byte{fin | opText}, false},
		{"an empty message", appendFrame(nil, fin|opText, ""), false},
		{"the first fragment of a message", appendFrame(nil, opBinary, "2"), true},
	} {
		if _, err := peer.Write(append(appendFrame(nil, fin|opText, "1"), c.next...)); err != nil {
			t.Fatal(err)
		}
		msg, more, err := message(server)
		if err != nil || msg != "1" {
			t.Fatalf("%s: %q, %v", c.name, msg, err)
		}
		if more != c.more {
			t.Errorf("followed by %s: More is %t", c.name, more)
		}
		switch {
		case len(c.next) == 1:
			peer.Write(appendFrame(nil, fin|opText, "2")[1:])
		case c.more && c.next[0]&fin == 0:
			peer.send(t, fin|opContinuation, "")
		case !c.more:
			peer.send(t, fin|opText, "2")
		}
		if got := read(t, server); got != "2" {
			t.Errorf("%s: then %q", c.name, got)
		}
	}
}

// TestInput reads what other implementations may send.
func TestInput(t *testing.T) {
	large := strings.Repeat("y", 600<<10)
	for _, c := range []struct {
		name   string
		frames []byte
		want   []string
	}{
		{"text", appendFrame(nil, fin|opText, "{}"), []string{"{}"}},
		{"binary", appendFrame(nil, fin|opBinary, "{}"), []string{"{}"}},
		{"invalid UTF-8 is for the Conn", appendFrame(nil, fin|opText, "\xff"), []string{"\xff"}},
		{"newlines inside", appendFrame(nil, fin|opText, "{\n}"), []string{"{\n}"}},
		{"empty messages", appendFrame(appendFrame(appendFrame(nil, fin|opText, ""), opText, ""), fin|opContinuation, ""), nil},
		{
			"fragments with a ping between",
			appendFrame(appendFrame(appendFrame(appendFrame(nil, opText, "{"), fin|opPing, "p"), opContinuation, ""), fin|opContinuation, "}"),
			[]string{"{}"},
		},
		{"a large frame", appendFrame(nil, fin|opText, large), []string{large}},
		{"large fragments", appendFrame(appendFrame(nil, opText, large), fin|opContinuation, large), []string{large + large}},
		{"as large as the buffer", appendFrame(nil, fin|opText, large[:256<<10]), []string{large[:256<<10]}},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer, server := rawPair(t, rpcws.AcceptConfig{})
			go peer.Write(appendFrame(c.frames, fin|opText, "end"))
			for _, want := range append(c.want, "end") {
				if got := read(t, server); got != want {
					t.Errorf("got %.20q, %d bytes", got, len(got))
				}
			}
		})
	}
}

// TestBrokenFrames holds the stream to an error where framing is lost.
func TestBrokenFrames(t *testing.T) {
	for name, frames := range map[string][]byte{
		"an unmasked frame":               {fin | opText, 2, '{', '}'},
		"an unknown opcode":               appendFrame(nil, fin|3, "x"),
		"a reserved bit":                  appendFrame(nil, fin|0x40|opText, "x"),
		"a continuation of nothing":       appendFrame(nil, fin|opContinuation, "x"),
		"a message within a message":      appendFrame(appendFrame(nil, opText, "1"), fin|opText, "2"),
		"a fragmented ping":               appendFrame(nil, opPing, "x"),
		"a long ping":                     appendFrame(nil, fin|opPing, strings.Repeat("x", 126)),
		"a frame of 2^63 bytes":           {fin | opText, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4},
		"a close code that must not come": appendFrame(nil, fin|opClose, "\x03\xee"),
	} {
		t.Run(name, func(t *testing.T) {
			peer, server := rawPair(t, rpcws.AcceptConfig{})
			if _, err := peer.Write(frames); err != nil {
				t.Fatal(err)
			}
			err := drain(server)
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("Read: %v", err)
			}
			go server.Close()
			if first, payload := peer.receive(t); first != fin|opClose || !strings.HasPrefix(payload, "\x03\xea") {
				t.Errorf("the peer was told %#x %q after %v, want 1002", first, payload, err)
			}
		})
	}
}

// TestMaskedByServer: a client does not take frames that a server has masked (RFC 6455
// section 5.1): without the key they would be other messages.
func TestMaskedByServer(t *testing.T) {
	told := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455 wants it
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(accept[:]) + "\r\n\r\n"
		conn.Write(appendFrame([]byte(head), fin|opText, "{}"))
		frame := make([]byte, 2+4+2) // header, key, code
		io.ReadFull(conn, frame)
		told <- []byte{frame[0], frame[6] ^ frame[2], frame[7] ^ frame[3]}
	}))
	defer srv.Close()
	client, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if text, _, err := message(client); err == nil || !strings.Contains(err.Error(), "masked frame from server") {
		t.Errorf("Read: %q, %v", text, err)
	}
	client.Close()
	if got := <-told; string(got) != "\x88\x03\xea" {
		t.Errorf("the server was told % x, want 1002", got)
	}
}

// TestEndsWithinAMessage: a connection that ends without a close frame ends no message,
// wherever that is: who dies between two fragments has not sent the rest.
func TestEndsWithinAMessage(t *testing.T) {
	whole := appendFrame(nil, opText, `{"a":`)
	last := appendFrame(nil, fin|opContinuation, `1}`)
	for name, sent := range map[string][]byte{
		"between two fragments":          whole,
		"within a header":                append(bytes.Clone(whole), last[0]),
		"behind the header":              append(bytes.Clone(whole), last[:len(last)-2]...),
		"within the last fragment":       append(bytes.Clone(whole), last[:len(last)-1]...),
		"behind the header of a message": appendFrame(nil, fin|opText, `{}`)[:6],
	} {
		peer, server := rawPair(t, rpcws.AcceptConfig{})
		if _, err := peer.Write(sent); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		if text, _, err := message(server); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestEnds maps what the peer says at the end (RPC-14).
func TestEnds(t *testing.T) {
	reason := strings.Repeat("r", 121) + "\x01\n"
	for _, c := range []struct {
		name   string
		frames []byte
		want   error
		text   string
	}{
		{"1000", appendFrame(nil, fin|opClose, "\x03\xe8"), io.EOF, "EOF"},
		{"1001", appendFrame(nil, fin|opClose, "\x03\xe9bye"), io.EOF, "EOF"},
		{"no code", appendFrame(nil, fin|opClose, ""), io.EOF, "EOF"},
		{"1000 within a message", appendFrame(appendFrame(nil, opText, "{"), fin|opClose, "\x03\xe8"), io.ErrUnexpectedEOF, "unexpected EOF"},
		{
			"1008", appendFrame(nil, fin|opClose, "\x03\xf0"+reason), io.ErrUnexpectedEOF,
			"rpcws: the peer closed the connection with code 1008 (PolicyViolation): " + strings.Repeat("r", 121),
		},
		{"4000", appendFrame(nil, fin|opClose, "\x0f\xa0a\x1b[1mb"), io.ErrUnexpectedEOF, "rpcws: the peer closed the connection with code 4000: a\ufffd[1mb"},
		{"no close frame", nil, io.ErrUnexpectedEOF, "unexpected EOF"},
		{"within a header", []byte{fin | opText, 0xfe, 1}, io.ErrUnexpectedEOF, "unexpected EOF"},
		{"within a payload", []byte{fin | opText, 0x85, 1, 2, 3, 4, 5}, io.ErrUnexpectedEOF, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer, server := rawPair(t, rpcws.AcceptConfig{})
			peer.Write(c.frames)
			peer.Conn.(*net.TCPConn).CloseWrite()
			err := drain(server)
			if !errors.Is(err, c.want) || err.Error() != c.text {
				t.Errorf("Read: %q, want %q", err, c.text)
			}
			if _, err := server.Write([]byte("{}\n")); c.frames != nil && c.frames[0]&0xf == opClose && err == nil {
				t.Error("Write after the close frame: no error")
			}
			go server.Close()
			first, payload := peer.receive(t)
			if first == fin|opText { // what was written above
				first, payload = peer.receive(t)
			}
			if first != fin|opClose || strings.HasPrefix(payload, "\x03\xea") { // nothing was illegal
				t.Errorf("the peer was told %#x %q", first, payload)
			}
		})
	}
}

// TestClose ends both sides: the peer's Read with io.EOF, our own with an
// error, and a second Close does nothing.
func TestClose(t *testing.T) {
	client, server := pair(t, rpcws.DialConfig{}, rpcws.AcceptConfig{})
	ended := make(chan error, 1)
	go func() { ended <- drain(server) }()
	own := make(chan error, 1)
	go func() { own <- drain(client) }()
	for range 2 {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	wants(t, "the peer's Read", <-ended, io.EOF)
	wants(t, "our Read", <-own, net.ErrClosed)
	if _, err := client.Write([]byte("{}\n")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

// TestCloseDeaf closes although the peer neither reads nor answers: what is
// blocked returns, within CloseTimeout.
func TestCloseDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		accepted := network.accepting(t, rpcws.AcceptConfig{CloseTimeout: 3 * time.Second})
		conn, err := network.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		dialRaw(t, conn)
		server := <-accepted
		ended := make(chan error, 2)
		go func() {
			_, err := server.Write(bytes.Repeat([]byte("{}\n"), 1<<20))
			ended <- err
		}()
		go func() { ended <- drain(server) }()
		synctest.Wait()
		begin := time.Now()
		server.Close()
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("Close took %v", d)
		}
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("no error after Close")
			}
		}
	})
}

// TestClosedByDeaf: a peer that closes, and reads nothing more, holds up neither Read
// nor Write for more than a second, which the last frames have to leave.
func TestClosedByDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, server := rawPairInMemory(t, rpcws.AcceptConfig{})
		defer peer.Close()
		written := make(chan error, 1)
		go func() {
			_, err := server.Write(bytes.Repeat([]byte("{}\n"), 1<<20))
			written <- err
		}()
		synctest.Wait()
		begin := time.Now()
		go peer.Write(appendFrame(nil, fin|opClose, "\x03\xe8"))
		wants(t, "Read", drain(server), io.EOF)
		if err := <-written; err == nil {
			t.Error("the peer has read nothing, and Write has no error")
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestHalfOpen finds out that the peer is gone although nothing ends.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, server := rawPairInMemory(t, rpcws.AcceptConfig{PingInterval: 20 * time.Second, PingTimeout: 5 * time.Second})
		defer peer.Close()
		begin := time.Now()
		go func() {
			// The peer takes everything, and answers nothing after the first ping.
			for i := 0; ; i++ {
				first, payload, err := peer.frame()
				if err != nil {
					return
				}
				if first == fin|opPing && i == 0 {
					peer.send(t, fin|opPong, payload)
				}
			}
		}()
		wants(t, "Read", drain(server), rpcws.ErrNoPong)
		// The answer counts as a sign of life at the tick at 40 s.
		if d := time.Since(begin); d != 65*time.Second {
			t.Errorf("found out after %v", d)
		}
		_, err := server.Write([]byte("{}\n"))
		wants(t, "Write", err, rpcws.ErrNoPong)
	})
}

// TestHalfOpenUnread does not take a Conn that reads nothing, because a handler
// takes its time, for a peer that sends nothing.
func TestHalfOpenUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		accepted := network.accepting(t, rpcws.AcceptConfig{})
		client, err := rpcws.Dial(t.Context(), "ws://x/", rpcws.DialConfig{HTTPClient: network.client(), PingInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server := <-accepted
		go drain(client)
		time.Sleep(10 * time.Minute)
		go client.Write([]byte("{}\n"))
		if got := read(t, server); got != "{}" {
			t.Errorf("read %q", got)
		}
	})
}

// TestPingWhileDeaf keeps a connection on which a peer pings, but for a while
// reads nothing: neither its messages nor the pong.
func TestPingWhileDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, server := rawPairInMemory(t, rpcws.AcceptConfig{PingInterval: -1})
		defer peer.Close()
		wrote := make(chan error, 1)
		go func() {
			_, err := server.Write(bytes.Repeat([]byte("{}\n"), 100_000))
			wrote <- err
		}()
		peerSent := make(chan struct{})
		go func() {
			defer close(peerSent)
			peer.send(t, fin|opPing, "1")
			peer.send(t, fin|opText, "2")
		}()
		if got := read(t, server); got != "2" {
			t.Errorf("read %q", got)
		}
		<-peerSent
		time.Sleep(20 * time.Second)
		messages, pongs := 0, 0
		for messages < 100_000 || pongs < 1 {
			switch first, _ := peer.receive(t); first {
			case fin | opText:
				messages++
			case fin | opPong:
				pongs++
			default:
				t.Fatalf("a frame beginning with %#x", first)
			}
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}

// TestHandshakeWithFrames reads messages that came in one packet with the
// handshake.
func TestHandshakeWithFrames(t *testing.T) {
	accepted := make(chan jsonrpc.Stream, 1)
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	defer handler.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	request = appendFrame(appendFrame(request, fin|opText, "1"), fin|opText, "2")
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	server := <-accepted
	for i := 1; i <= 2; i++ {
		if got := read(t, server); got != fmt.Sprint(i) {
			t.Errorf("message %d is %q", i, got)
		}
	}
}

// TestCompression runs with permessage-deflate on both ends, and on one.
func TestCompression(t *testing.T) {
	for _, both := range []bool{true, false} {
		client, server := pair(t, rpcws.DialConfig{Compression: true}, rpcws.AcceptConfig{Compression: both})
		for _, size := range []int{10, 10_000, 2 << 20} {
			text := strings.Repeat("z", size)
			var writing sync.WaitGroup // one Write at a time, as the Stream demands
			writing.Go(func() { client.Write([]byte(text + "\n")) })
			if got := read(t, server); got != text {
				t.Errorf("both=%t: %d bytes arrived as %d", both, size, len(got))
			}
			writing.Wait()
			writing.Go(func() { server.Write([]byte(text + "\n")) })
			if got := read(t, client); got != text {
				t.Errorf("both=%t: %d bytes came back as %d", both, size, len(got))
			}
			writing.Wait()
		}
	}
}
