// SPDX-License-Identifier: MIT
//! What describes a Parquet file is written in Thrift's compact protocol.

use super::encode::{varint, zigzag};

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Writes the fields of a struct, whose numbers rise.
pub(super) struct Struct<'a> {
    to: &'a mut Vec<u8>,
    last: u8,
}

impl<'a> Struct<'a> {
    /// Write a struct.
    pub(super) fn write(to: &'a mut Vec<u8>, fields: impl FnOnce(&mut Struct)) {
        let mut this = Struct { to, last: 0 };
        fields(&mut this);
        this.to.push(0);
    }

    fn field(&mut self, number: u8, kind: u8) {
        debug_assert!(number > self.last && number - self.last < 16, "a short head holds the difference");
        self.to.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    /// A number, or one of an enumeration.
    pub(super) fn i32(&mut self, number: u8, value: i32) {
        self.field(number, I32);
        varint(zigzag(value.into()), self.to);
    }

    /// A long number.
    pub(super) fn i64(&mut self, number: u8, value: i64) {
        self.field(number, I64);
        varint(zigzag(value), self.to);
    }

    /// Bytes, or a text.
    pub(super) fn bytes(&mut self, number: u8, value: &[u8]) {
        self.field(number, BINARY);
        binary(value, self.to);
    }

    /// A struct.
    pub(super) fn within(&mut self, number: u8, fields: impl FnOnce(&mut Struct)) {
        self.field(number, STRUCT);
        Struct::write(self.to, fields);
    }

    fn list(&mut self, number: u8, kind: u8, length: usize) {
        self.field(number, LIST);
        if length < 15 {
            self.to.push(length.to_le_bytes()[0] << 4 | kind);
        } else {
            self.to.push(0xF0 | kind);
            varint(length as u64, self.to);
        }
    }

    /// A list of numbers.
    pub(super) fn i32s(&mut self, number: u8, values: &[i32]) {
        self.list(number, I32, values.len());
        for &value in values {
            varint(zigzag(value.into()), self.to);
        }
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, number: u8, values: &[&str]) {
        self.list(number, BINARY, values.len());
        for value in values {
            binary(value.as_bytes(), self.to);
        }
    }

    /// A list of structs.
    pub(super) fn structs<T>(&mut self, number: u8, values: &[T], fields: impl Fn(&T, &mut Struct)) {
        self.list(number, STRUCT, values.len());
        for value in values {
            Struct::write(self.to, |this| fields(value, this));
        }
    }
}

fn binary(value: &[u8], to: &mut Vec<u8>) {
    varint(value.len() as u64, to);
    to.extend(value);
}
