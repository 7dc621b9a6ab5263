//! Circles of calls: the strongly connected components of a graph (Tarjan, 1972).

use crate::calls::Edges;

struct Walk<'a> {
    next: &'a [Vec<usize>],
    number: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    on_stack: Vec<bool>,
    count: usize,
    found: Vec<Vec<usize>>,
}

/// The files of each circle with more than one, the largest first.
pub fn circles(files: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); files];
    edges.keys().for_each(|&(from, to)| next[from].push(to));
    let mut walk = Walk {
        next: &next,
        number: vec![None; files],
        low: vec![0; files],
        stack: Vec::new(),
        on_stack: vec![false; files],
        count: 0,
        found: Vec::new(),
    };
    (0..files).for_each(|file| walk.visit(file));
    walk.found.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle[0]));
    walk.found
}

impl Walk<'_> {
    fn visit(&mut self, file: usize) {
        if self.number[file].is_some() {
            return;
        }
        let own = self.count;
        self.count += 1;
        (self.number[file], self.low[file]) = (Some(own), own);
        self.stack.push(file);
        self.on_stack[file] = true;
        for &other in &self.next[file] {
            match self.number[other] {
                None => {
                    self.visit(other);
                    self.low[file] = self.low[file].min(self.low[other]);
                }
                Some(number) if self.on_stack[other] => {
                    self.low[file] = self.low[file].min(number);
                }
                Some(_) => (),
            }
        }
        if self.low[file] == own {
            let from = self.stack.iter().position(|&it| it == file).expect("it is on the stack");
            let mut circle = self.stack.split_off(from);
            circle.iter().for_each(|&it| self.on_stack[it] = false);
            if circle.len() > 1 {
                circle.sort_unstable();
                self.found.push(circle);
            }
        }
    }
}
