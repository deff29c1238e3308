package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The texts of the benchmarks: a request of 290 bytes as programs send it, and
// messages of 1 MB, one of many small values and one of a single string.
func benchText(name string) []byte {
	switch name {
	case "290":
		return []byte(`{"jsonrpc":"2.0","id":1234567,"method":"tasks/send","params":{"id":"3f2a9c70-8d55-4b1e-9a0f-5b2c7d1e8f44","session":"a1b2c3d4e5f6","priority":3,"deadline":1893456000.25,"retry":true,"parent":null,"tags":["alpha","beta","gamma"],"message":{"role":"user","text":"Summarise the report, now"}}}`)
	case "records":
		var b bytes.Buffer
		b.WriteString(`{"jsonrpc":"2.0","id":1,"result":[`)
		for i := 0; b.Len() < 1<<20; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":%d,"name":"record %d","active":%t,"score":%d.%02d,"tags":["red","green","blue"],"owner":null}`,
				i, i, i%2 == 0, i%97, i%100)
		}
		b.WriteString(`]}`)
		return b.Bytes()
	default:
		return []byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("The quick brown fox. ", 50_000) + `"}`)
	}
}

func BenchmarkScan290(b *testing.B) { benchmarkScan(b, "290") }

func BenchmarkScanRecords(b *testing.B) { benchmarkScan(b, "records") }

func BenchmarkScanString(b *testing.B) { benchmarkScan(b, "string") }

// benchmarkScan compares the scan, which reads and checks everything, with a
// grammar check by encoding/json, and with the checker for values in pieces.
func benchmarkScan(b *testing.B, name string) {
	text := benchText(name)
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		var m message
		for b.Loop() {
			m.scan(text, 128)
		}
		if m.kind != kindRequest && m.kind != kindResult {
			b.Fatal(m.fault)
		}
	})
	b.Run("pieces", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			c := valueChecker{maxDepth: 128}
			if err := c.Write(text); err != nil || c.Close() != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json.Valid", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if !json.Valid(text) {
				b.Fatal("invalid")
			}
		}
	})
}

func BenchmarkScanBatch(b *testing.B) {
	one := benchText("290")
	text := append([]byte("["), bytes.Repeat(append(one, ','), 100)...)
	text[len(text)-1] = ']'
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var m message
	var entries []message
	for b.Loop() {
		entries = m.scanBatch(entries[:0], text, 128, 1000)
	}
	if len(entries) != 100 {
		b.Fatal(m.fault)
	}
}

func BenchmarkEncode(b *testing.B) {
	var m message
	m.scan(benchText("290"), 128)
	out := outgoing{id: m.id, method: "tasks/send", params: m.params}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendRequest(buf[:0], &out)
	}
}
