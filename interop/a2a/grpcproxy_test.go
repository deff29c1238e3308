package a2a

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// fate is what becomes of one call over gRPC.
type fate int

const (
	// fateLost: nothing of the agent's answer arrives, and once the answer is
	// whole the connection breaks.
	fateLost fate = iota
	// fateStalled: nothing of the answer arrives, and nothing breaks.
	fateStalled
	// fateCut: the connection breaks after the first message of the answer.
	fateCut
)

// frameProxy stands between Parley and an agent that speaks gRPC. Unlike a
// [proxy] it knows which frames belong to which call, since all calls share one
// connection.
type frameProxy struct {
	*proxy
	mu     sync.Mutex
	marker []byte
	fate   fate
	// passed counts the requests with the marker, met those whose fate is done.
	passed, met int
}

// newFrameProxy makes a proxy in front of an agent's gRPC server. The first
// request that has marker in it meets its fate.
func newFrameProxy(t *testing.T, a *agent, marker string, f fate) *frameProxy {
	t.Helper()
	fp := &frameProxy{marker: []byte(marker), fate: f}
	fp.proxy = newProxyOf(t, a.where["grpc"], func(c, server net.Conn, _, _ bool) { fp.exchange(c, server) })
	return fp
}

// counts says how many requests had the marker, and how many met their fate.
func (p *frameProxy) counts() (passed, met int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed, p.met
}

// exchange copies the frames of one connection until it is over.
func (p *frameProxy) exchange(c, server net.Conn) {
	var wg sync.WaitGroup
	var doomed doomedCall
	wg.Go(func() {
		p.toAgent(c, server, &doomed)
		_ = server.Close()
	})
	p.fromAgent(server, c, &doomed)
	_ = c.Close()
	_ = server.Close()
	wg.Wait()
}

// doomedCall is the stream of the one call that meets its fate, or 0.
type doomedCall struct {
	mu     sync.Mutex
	stream uint32
}

func (d *doomedCall) set(stream uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stream = stream
}

func (d *doomedCall) is(stream uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return stream != 0 && d.stream == stream
}

// preface is what a client of HTTP/2 begins with (RFC 9113 §3.4), in bytes.
const preface = 24

// toAgent passes on the requests and looks for the marker.
func (p *frameProxy) toAgent(c io.Reader, server io.Writer, doomed *doomedCall) {
	if _, err := io.CopyN(server, c, preface); err != nil {
		return
	}
	for {
		f, err := readFrame(c)
		if err != nil {
			return
		}
		if f.kind() == frameData && bytes.Contains(f, p.marker) {
			p.mu.Lock()
			if p.passed++; p.passed == 1 {
				doomed.set(f.stream())
			}
			p.mu.Unlock()
		}
		if _, err := server.Write(f); err != nil {
			return
		}
	}
}

// fromAgent passes on the answers, until one is doomed.
func (p *frameProxy) fromAgent(server io.Reader, c io.Writer, doomed *doomedCall) {
	held := false
	for {
		f, err := readFrame(server)
		if err != nil {
			return
		}
		ours := doomed.is(f.stream()) && (f.kind() == frameData || f.kind() == frameHeaders)
		// What follows cannot be read without what was held back: headers are
		// compressed for the whole connection.
		held = held || ours && p.fate != fateCut
		if !held {
			if _, err := c.Write(f); err != nil {
				return
			}
		}
		if ours && p.over(f) {
			return
		}
	}
}

// over says whether the fate is done with f, a frame of the doomed answer.
func (p *frameProxy) over(f frame) bool {
	switch {
	case p.fate == fateLost && !f.last(), p.fate == fateCut && f.kind() != frameData, p.fate == fateStalled:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met++
	return true
}

// frame is a frame of HTTP/2 with its header (RFC 9113 §4.1).
type frame []byte

// The types of frames that matter here, and the flag of a stream's last one.
const (
	frameHeader     = 9
	frameData       = 0
	frameHeaders    = 1
	frameEndStream  = 1
	frameStreamMask = 1<<31 - 1
)

// readFrame reads one frame. None is longer than the 16 MiB that its header
// can say.
func readFrame(r io.Reader) (frame, error) {
	f := make(frame, frameHeader, 1<<10)
	if _, err := io.ReadFull(r, f); err != nil {
		return nil, err
	}
	size := int(f[0])<<16 | int(f[1])<<8 | int(f[2])
	f = append(f, make([]byte, size)...)
	_, err := io.ReadFull(r, f[frameHeader:])
	return f, err
}

func (f frame) kind() byte     { return f[3] }
func (f frame) last() bool     { return f[4]&frameEndStream != 0 }
func (f frame) stream() uint32 { return binary.BigEndian.Uint32(f[5:]) & frameStreamMask }
